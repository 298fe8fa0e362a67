-- Users have each seat once; requests over several tasks are found by the task whose run is for them; and of thousands of items that
-- have fallen due at once, a round reads the best in their order. Older nodes work beside it.

---- tern: disable-tx ----

create unique index concurrently work_seat on getwork.work (user_name, seat) where state = 'held' and seat is not null;
create index concurrently work_requested_todo on getwork.work_requested ((todo[1]), look_after) where state = 'pending' and task_id = 0;
create index concurrently item_put_off on getwork.item (task_id, priority desc, id) where done_at is null and due_at < 'infinity';
comment on index getwork.work_seat is 'Two rounds of different tasks do not give one user the same seat, and so not more than the limit.';

---- create above / drop below ----

drop index getwork.item_put_off;
drop index getwork.work_requested_todo;
drop index getwork.work_seat;
