-- Items that need groups or skills, and the skills of people. Older nodes work beside it, and give such items to anybody: what an item
-- needs is in force once they are gone. What they push needs nothing, and is found last until then.

---- tern: disable-tx ----

create table if not exists getwork.skill (
  user_name  text primary key,
  skills     text[] not null,
  changed_at timestamptz not null default clock_timestamp(),
  changed_by text not null
);
comment on table getwork.skill is 'What people can, by which they meet what items need, beside the groups of their log-in. No row: nothing.';
comment on column getwork.skill.user_name is 'Whose skills they are; somebody who has never logged in may have some.';
comment on column getwork.skill.skills is 'In order, each once.';
comment on column getwork.skill.changed_at is 'When they were last changed.';
comment on column getwork.skill.changed_by is 'Who did that.';

alter table getwork.run add column if not exists needs jsonb;
alter table getwork.task_state add column if not exists needs jsonb;
alter table getwork.task_state add column if not exists shelf_froms bigint[];
alter table getwork.work add column if not exists needs text[];
alter table getwork.candidate add column if not exists class smallint;
alter table getwork.item add column if not exists class smallint;
alter table getwork.item add column if not exists needs_until timestamptz;
comment on column getwork.run.needs is 'What its items need, an object for each class from 1: needs has the groups and skills, items how many items there are. Null: nothing.';
comment on column getwork.task_state.needs is 'The same for an inbox, without their number.';
comment on column getwork.task_state.shelf_froms is 'By class, likewise as shelf_from, which is the lowest. Null: all begin there.';
comment on column getwork.work.needs is 'What the item needed when it was handed out. Null: nothing.';
comment on column getwork.candidate.class is 'Which of the run''s needs are the item''s. Null: no item of the run needs anything.';
comment on column getwork.item.class is 'Which of the inbox''s needs are the item''s. Null: it needs nothing.';
comment on column getwork.item.needs_until is 'From when on it needs nothing. Null: it always does.';

create index concurrently if not exists candidate_class on getwork.candidate (run_id, class, rank) where class is not null;
create index concurrently if not exists item_class on getwork.item (task_id, class, priority desc, id) where due_at is null and done_at is null and class is not null;
create index concurrently if not exists item_needs_until on getwork.item (task_id, needs_until) where done_at is null and needs_until is not null;

---- create above / drop below ----

drop index getwork.item_needs_until;
drop index getwork.item_class;
drop index getwork.candidate_class;
alter table getwork.item drop column needs_until, drop column class;
alter table getwork.candidate drop column class;
alter table getwork.work drop column needs;
alter table getwork.task_state drop column shelf_froms, drop column needs;
alter table getwork.run drop column needs;
drop table getwork.skill;
