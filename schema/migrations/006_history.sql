-- A few rows of an item's history decide who may have it, however many there are: a lease of 30 s leaves thousands a day.

-- The table that a running query has locked comes first: a try that waits for it in vain loses nothing else.
--
-- The first condition on a time is the index's, see below; the second leaves out work returned to others, who may have it.
create or replace view getwork.blocked as
  select task_id, item, state = 'held' as held, exclusive
  from getwork.work
  where state in ('held', 'never', 'returned', 'failed')
    and coalesce(case when not to_others then available_at end, 'infinity'::timestamptz) > statement_timestamp()
    and (available_at is null or available_at > statement_timestamp());

-- It contained every return and every failure ever.
drop index getwork.work_blocking;

create index work_binding on getwork.work (task_id, item, (coalesce(case when not to_others then available_at end, 'infinity'::timestamptz)))
  where state in ('held', 'never', 'returned', 'failed');
comment on index getwork.work_binding is 'What has a say in who may have an item now (held, put off, never to return, returned to others) stands here at times in the future, in one range; what is over lies before it.';

create index work_completed on getwork.work (task_id, item, user_name) where state = 'completed';
comment on index getwork.work_completed is 'Four eyes: who has completed an item is read from one user to the next, however often each has.';

---- create above / drop below ----

create or replace view getwork.blocked as
  select task_id, item, state = 'held' as held, exclusive
  from getwork.work
  where state in ('held', 'never', 'returned', 'failed')
    and (available_at is null or available_at > statement_timestamp());
drop index getwork.work_completed;
drop index getwork.work_binding;
create index work_blocking on getwork.work (task_id, item, available_at) where state in ('held', 'never', 'returned', 'failed');
