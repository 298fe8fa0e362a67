-- Where GET /tasks finds what is late. Older nodes work beside it. Only items with a deadline have entries.

---- tern: disable-tx ----

create index concurrently candidate_deadline on getwork.candidate (run_id, deadline) where deadline is not null;
create index concurrently item_deadline on getwork.item (task_id, deadline) where done_at is null and deadline is not null;

---- create above / drop below ----

drop index getwork.item_deadline;
drop index getwork.candidate_deadline;
