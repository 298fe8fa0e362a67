-- What GET /tasks says of a task's supply, deadlines of items, and who had an item before. Older nodes work beside it: a run of theirs
-- does not count as the last one, what they rank, push and hand out has no deadline and is not marked, and a task that is changed by
-- one of them shows notes to holders.

alter table getwork.task_state add column last_run bigint; -- of run, in which rows stay
comment on column getwork.task_state.last_run is 'The last run that finished. Null: none has.';

alter table getwork.run add column oldest timestamptz;
comment on column getwork.run.oldest is 'The earliest "since" of the rows that were neither blocked nor passed over. Null: the query returns none.';

alter table getwork.work add column deadline timestamptz;
alter table getwork.item add column deadline timestamptz;
alter table getwork.candidate add column deadline timestamptz;
comment on column getwork.work.deadline is 'When the item should be done. Null: at any time.';
comment on column getwork.item.deadline is 'When it should be done; it changes no order. Null: at any time.';
comment on column getwork.candidate.deadline is 'When it should be done, by the query''s column "deadline". Null: at any time.';

alter table getwork.work add column again boolean;
comment on column getwork.work.again is 'When it was handed out, somebody had let go of its item before. Null: nobody had.';

alter table getwork.task_version add column notes text check (notes in ('holders', 'managers'));
comment on column getwork.task_version.notes is 'Who sees how the item was let go of before: its holders and managers, or managers alone. Null: holders.';

---- create above / drop below ----

alter table getwork.task_version drop column notes;
alter table getwork.work drop column again;
alter table getwork.candidate drop column deadline;
alter table getwork.item drop column deadline;
alter table getwork.work drop column deadline;
alter table getwork.run drop column oldest;
alter table getwork.task_state drop column last_run;
