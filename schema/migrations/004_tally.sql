-- Counting what happened in the last hours, beside years of it.

-- A few pages for each stretch of the table instead of an entry for each row: recording a click hardly feels it. What was
-- closed since then is found by work_closed, and that, together with what is held, is all that was handed out since.
create index work_requested_created on getwork.work_requested using brin (created_at) with (pages_per_range = 32, autosummarize = on);
comment on index getwork.work_requested_created is 'The requests of the last hours are found here. Only for counting: no round and no click reads it.';

create index run_started on getwork.run (started_at);
comment on index getwork.run_started is 'The runs of the last hours, of all tasks.';

---- create above / drop below ----

drop index getwork.run_started;
drop index getwork.work_requested_created;
