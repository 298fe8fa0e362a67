-- Items that several different people complete, and completions that go on to another task's inbox. Older nodes work beside it: they
-- finish an item with its first completion, may give it to one user twice, and send nothing on. So all of it is in force once they are
-- gone.

alter table getwork.task_version add column done_by integer check (done_by between 1 and 100), add column once boolean,
  add column on_complete jsonb check (jsonb_typeof(on_complete) = 'object');
comment on column getwork.task_version.done_by is 'How many different users complete an item of an inbox before it is done, where the item itself does not say. Null: 1.';
comment on column getwork.task_version.once is 'Whoever completed an item that the query returns does not get it again. Null: they may.';
comment on column getwork.task_version.on_complete is 'Where a share of what is completed goes: {"task": the id of an inbox, "share": from 0 to 1, "when": of which codes}. Null: nowhere.';

alter table getwork.item add column done_by integer check (done_by between 1 and 100), add column completed_by text[], add column from_work bigint;
comment on column getwork.item.done_by is 'How many different users complete it before it is done; null: as many as the task says.';
comment on column getwork.item.completed_by is 'Who has completed it, if several are to. They stand here because an update that waited for this row reads it again: two last completions at once both count.';
comment on column getwork.item.from_work is 'The completed work that it was pushed for; null: none, somebody pushed it.';

alter table getwork.work add column from_work bigint;
comment on column getwork.work.from_work is 'The completed work that its item was pushed for; null: none.';

---- create above / drop below ----

alter table getwork.work drop column from_work;
alter table getwork.item drop column from_work, drop column completed_by, drop column done_by;
alter table getwork.task_version drop column on_complete, drop column once, drop column done_by;
