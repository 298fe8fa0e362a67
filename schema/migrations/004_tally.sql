-- Indexes to count the last hours, however many years there are.

-- BRIN has an entry for a range of pages, not for each row, so it hardly slows a click. Work that was handed out since a time
-- is either held, or was closed since then and is found by work_closed.
create index work_requested_created on getwork.work_requested using brin (created_at) with (pages_per_range = 32, autosummarize = on);
comment on index getwork.work_requested_created is 'The requests of the last hours are found here. Only for counting: no round and no click reads it.';

create index run_started on getwork.run (started_at);
comment on index getwork.run_started is 'The runs of the last hours, of all tasks.';

---- create above / drop below ----

drop index getwork.run_started;
drop index getwork.work_requested_created;
