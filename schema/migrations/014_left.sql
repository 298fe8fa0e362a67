-- How much was left to do at the end of each hour. Older nodes work beside it: the hours that they count have none.

alter table getwork.task_hour add column free integer;
comment on column getwork.task_hour.free is 'Items that could be handed out at its end, by its last list and what was handed out since. Null: nobody knows.';

---- create above / drop below ----

alter table getwork.task_hour drop column free;
