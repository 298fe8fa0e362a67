-- Requests over several tasks. They stand in a line of their own, that of task 0, which has no task_state: no loop runs it, and no list of
-- tasks shows it. Older nodes work beside it: they serve everything else, and answer 404 to who polls such a request, so it is offered
-- once all nodes are new.

insert into getwork.task (id) overriding system value values (0);
comment on table getwork.task is
  'The run lock. Whoever locks a task''s row (for no key update skip locked) may run its heavy query. The row is never updated, so nothing else ever waits behind a query; settings are in task_version, what changes is in task_state. 0 is no task, but the line of requests over several: it is never locked.';

alter table getwork.work_requested add column targets bigint[], add column todo bigint[], add column unseen bigint[];
comment on column getwork.work_requested.task_id is 'The task; 0: several, none of which has given it anything yet. The round that does makes it a request of its task.';
comment on column getwork.work_requested.targets is 'The tasks that it may be served from, in the order in which they are asked. Null: it is for one task.';
comment on column getwork.work_requested.todo is 'Those with a query that are still to be asked for it. The first one''s run is for it.';
comment on column getwork.work_requested.unseen is 'Those whose rounds have not looked for it yet: if a node died before it woke them, the rescuer does.';

alter table getwork.task_version add column priority integer check (priority between -1000000 and 1000000),
  add column pick text check (pick in ('any', 'next'));
comment on column getwork.task_version.priority is 'Requests over several tasks are served from the highest first. Null: 0.';
comment on column getwork.task_version.pick is 'any: people may ask for this task, or claim an item that they name. next: they get what a request over several tasks gives them. Null: any.';

---- create above / drop below ----

alter table getwork.task_version drop column pick, drop column priority;
delete from getwork.work_requested where task_id = 0;
alter table getwork.work_requested drop column unseen, drop column todo, drop column targets;
delete from getwork.task where id = 0;
