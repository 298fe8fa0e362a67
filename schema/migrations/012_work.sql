-- Held work and work that is over have indexes of their own. Handing out an item adds an entry to those of held work, and closing
-- it to those of the past; before, each was also in the other's. A read of both is a union of two look-ups in one statement.
--
-- No table is locked against writing meanwhile, whatever the size. Killed at any point, it begins again where it was.
---- tern: disable-tx ----

create unique index concurrently work_holder on getwork.work (user_name, instance, task_id, item) where state = 'held';
comment on index getwork.work_holder is 'A holder holds an item at most once; and a pipeline is read from here.';

create index concurrently work_put_off on getwork.work (task_id, item, (coalesce(case when not to_others then available_at end, 'infinity'::timestamptz)))
  where state in ('never', 'returned', 'failed');
comment on index getwork.work_put_off is 'What else than held work has a say in who may have an item now (put off, never to return, returned to others) stands here at times in the future, in one range; what is over lies before it.';

create index concurrently work_due on getwork.work ((least(warn_at, lease_expires_at))) where state = 'held' and lease_expires_at is not null;
comment on index getwork.work_due is 'Whose lease runs out next, or whose holder is to be warned of it, is found here, however long the history is.';

create index concurrently work_past_item on getwork.work (task_id, item, id) where state <> 'held';

-- It begins with an expression that no other query has: see 003_shelf.
create index concurrently work_past_task on getwork.work ((task_id + 0), id) where state <> 'held';

create index concurrently work_past_user on getwork.work (user_name, id) where state <> 'held';

-- PostgreSQL takes no statistics of an expression from a partial index.
create statistics if not exists getwork.work_of_task on (task_id + 0) from getwork.work;

create or replace view getwork.blocked as
  select task_id, item, true as held, exclusive
  from getwork.work
  where state = 'held'
  union all
  select task_id, item, false, exclusive
  from getwork.work
  where state in ('never', 'returned', 'failed')
    and coalesce(case when not to_others then available_at end, 'infinity'::timestamptz) > statement_timestamp()
    and (available_at is null or available_at > statement_timestamp());

-- Older nodes' reads of an item's work lose their index here. What they write is as right as before.
drop index concurrently if exists getwork.work_binding;
drop index concurrently if exists getwork.work_item;
drop index concurrently if exists getwork.work_task;
drop index concurrently if exists getwork.work_user;
drop index concurrently if exists getwork.work_pipeline;
drop index concurrently if exists getwork.work_held_holder;
drop index concurrently if exists getwork.work_lease;
drop index concurrently if exists getwork.work_warn;

---- create above / drop below ----
---- tern: disable-tx ----

create unique index concurrently work_held_holder on getwork.work (task_id, item, user_name, instance) where state = 'held';
comment on index getwork.work_held_holder is 'A holder holds an item at most once.';
create index concurrently work_lease on getwork.work (lease_expires_at) where state = 'held' and lease_expires_at is not null;
comment on index getwork.work_lease is 'What ran out is found here, however long the history is.';
create index concurrently work_warn on getwork.work (warn_at) where state = 'held' and warn_at is not null;
create index concurrently work_pipeline on getwork.work (user_name, instance, id) where state = 'held';
create index concurrently work_user on getwork.work (user_name, id);
create index concurrently work_task on getwork.work ((task_id + 0), id);
create index concurrently work_item on getwork.work (task_id, item, id);
create index concurrently work_binding on getwork.work (task_id, item, (coalesce(case when not to_others then available_at end, 'infinity'::timestamptz)))
  where state in ('held', 'never', 'returned', 'failed');
comment on index getwork.work_binding is 'What has a say in who may have an item now (held, put off, never to return, returned to others) stands here at times in the future, in one range; what is over lies before it.';

create or replace view getwork.blocked as
  select task_id, item, state = 'held' as held, exclusive
  from getwork.work
  where state in ('held', 'never', 'returned', 'failed')
    and coalesce(case when not to_others then available_at end, 'infinity'::timestamptz) > statement_timestamp()
    and (available_at is null or available_at > statement_timestamp());

drop statistics if exists getwork.work_of_task;
drop index concurrently if exists getwork.work_past_user;
drop index concurrently if exists getwork.work_past_task;
drop index concurrently if exists getwork.work_past_item;
drop index concurrently if exists getwork.work_due;
drop index concurrently if exists getwork.work_put_off;
drop index concurrently if exists getwork.work_holder;
