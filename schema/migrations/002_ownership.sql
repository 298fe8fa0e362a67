-- The ways to hold and to close work: leases that run out, places for several holders, inboxes, attempts, rules.

alter table getwork.task_version
  alter column query drop not null,
  add column slots          integer not null default 1 check (slots between 1 and 10000),
  add column max_open       integer check (max_open >= 1),
  add column max_attempts   integer check (max_attempts >= 1),
  add column backoff        interval not null default '30 seconds' check (backoff > interval '0'),
  add column conflicts_with bigint[] not null default '{}',
  add column groups         text[] not null default '{}';
comment on column getwork.task_version.query is 'The ranking query: one SELECT that returns a column "item", best first. It need not leave out what is held or put off. Null: an inbox, whose items are those in the table item.';
comment on column getwork.task_version.slots is 'How many holders an item may have at a time, where the item itself does not say.';
comment on column getwork.task_version.max_open is 'The most that one user may hold of the task; null: no limit.';
comment on column getwork.task_version.max_attempts is 'An item whose attempts failed, or whose leases ran out, so often is never handed out again until it is redriven; null: no limit.';
comment on column getwork.task_version.backoff is 'After the first failed attempt an item waits this long, after each further one twice as long.';
comment on column getwork.task_version.conflicts_with is 'Tasks of which nobody may hold or have completed the same item (four eyes). It counts both ways; task_conflict has what is in force.';
comment on column getwork.task_version.groups is 'Who may see and take the task: members of any of these. Empty: everybody.';

create table getwork.task_conflict (
  task_id  bigint not null references getwork.task,
  other_id bigint not null references getwork.task,
  primary key (task_id, other_id),
  check (task_id <> other_id)
);
create index task_conflict_other on getwork.task_conflict (other_id);
comment on table getwork.task_conflict is
  'Four eyes, as it is in force: a pair for each way. Whoever makes work held takes the assign locks of the task and of all these, so that no two nodes decide about the two sides of a pair at the same time. Changed only under the assign locks of both.';
comment on column getwork.task_conflict.task_id is 'The task.';
comment on column getwork.task_conflict.other_id is 'A task that must not have the same user for the same item.';

alter table getwork.candidate
  add column slots     integer not null default 1,
  add column exclusive text;
comment on column getwork.candidate.slots is 'How many holders it may have at a time.';
comment on column getwork.candidate.exclusive is 'Its group, of which one member is held at a time.';

alter table getwork.work_requested
  add column lease  interval check (lease > interval '0'),
  add column groups text[];
comment on column getwork.work_requested.lease is 'How long its work is to be held, where the task does not say; an agent''s wish.';
comment on column getwork.work_requested.groups is 'The groups that its user was in; null: a manager, who needs none.';
comment on column getwork.work_requested.reason is 'Why nothing, or less, was handed out; of one that lingers, why nothing has been so far.';

alter table getwork.work
  add column warn_at     timestamptz,
  add column to_others   boolean not null default false,
  add column exhausted   boolean not null default false,
  add column error       text check (octet_length(error) <= 4096),
  add column redriven_by text,
  drop constraint work_check4,
  add constraint work_available_at check ((available_at is not null) = (state in ('returned', 'failed') or redriven_by is not null)),
  add constraint work_redriven check (redriven_by is null or state = 'never'),
  add constraint work_exhausted check (not exhausted or state = 'never'),
  drop constraint work_request_id_fkey,
  add constraint work_request_id_fkey foreign key (request_id) references getwork.work_requested on delete set null;
comment on column getwork.work.warn_at is 'When its holder is told that the lease is about to run out; null: he was told, or there is no lease.';
comment on column getwork.work.to_others is 'Returned, but not to be offered to the same user again.';
comment on column getwork.work.exhausted is 'Never, because the last of its attempts failed or ran out, not because somebody said so.';
comment on column getwork.work.error is 'How the attempt failed.';
comment on column getwork.work.redriven_by is 'Who put it back after it was never; available_at says when.';
comment on column getwork.work.closed_by is 'Who let go of it: the holder, or a manager; null: nobody, its lease ran out.';
comment on column getwork.work.available_at is 'Put off until then; of what was never, when it was redriven.';
create index work_lease on getwork.work (lease_expires_at) where state = 'held' and lease_expires_at is not null;
create index work_warn on getwork.work (warn_at) where state = 'held' and warn_at is not null;
create index work_task on getwork.work (task_id, id);
create index work_user on getwork.work (user_name, id);
create index work_closed on getwork.work (closed_at) where closed_at is not null;
create index work_exhausted on getwork.work (task_id, item) where exhausted and redriven_by is null;
comment on index getwork.work_lease is 'What ran out is found here, however long the history is.';

create or replace view getwork.blocked as
  select task_id, item, state = 'held' as held, exclusive
  from getwork.work
  where state in ('held', 'never', 'returned', 'failed')
    and (available_at is null or available_at > statement_timestamp());
comment on column getwork.blocked.held is 'It is held, and takes up one of the item''s places.';
comment on column getwork.blocked.exclusive is 'The group that holding it keeps busy.';

create table getwork.item (
  id         bigint generated by default as identity primary key,
  task_id    bigint not null references getwork.task,
  item       text collate "C" not null check (octet_length(item) between 1 and 200),
  priority   integer not null default 0,
  slots      integer check (slots between 1 and 10000),
  exclusive  text,
  details    json not null default '{}',
  pushed_at  timestamptz not null default clock_timestamp(),
  pushed_by  text not null,
  due_at     timestamptz,
  done_at    timestamptz,
  check (exclusive is null or coalesce(slots, 1) = 1)
) with (fillfactor = 80);
create unique index item_key on getwork.item (task_id, item) where done_at is null;
create index item_ready on getwork.item (task_id, priority desc, id) where due_at is null and done_at is null;
create index item_due on getwork.item (task_id, due_at) where done_at is null and due_at < 'infinity';
create index item_done on getwork.item (done_at) where done_at is not null;
comment on table getwork.item is
  'The inbox: items that were pushed to a task without a query. work is the truth about who holds what; due_at only keeps what can''t be handed out from the index that a round reads, and changes in the transaction that changes the work.';
comment on index getwork.item_key is 'A key is there once until it is done; pushing it again is counted as a duplicate.';
comment on index getwork.item_ready is 'What a round reads: the highest priority first, then the oldest. Finished, held and put-off items are not in it.';
comment on column getwork.item.id is 'Its age: an item that comes back keeps it.';
comment on column getwork.item.task_id is 'The task.';
comment on column getwork.item.item is 'Its key.';
comment on column getwork.item.priority is 'Higher is handed out first.';
comment on column getwork.item.slots is 'How many holders it may have at a time; null: as many as the task says.';
comment on column getwork.item.exclusive is 'Its group, of which one member is held at a time.';
comment on column getwork.item.details is 'What else the pusher said of it.';
comment on column getwork.item.pushed_at is 'When it was pushed.';
comment on column getwork.item.pushed_by is 'Who pushed it.';
comment on column getwork.item.due_at is 'Null: it can be handed out. A time: from then on. infinity: it is held, or never to come back. Items for several holders stay at null; how many places are left is counted from work.';
comment on column getwork.item.done_at is 'It was completed. Marked here, removed later, in the background.';

---- create above / drop below ----

drop table getwork.item;
drop view getwork.blocked;
create view getwork.blocked as
  select task_id, item
  from getwork.work
  where state in ('held', 'never', 'returned', 'failed')
    and (available_at is null or available_at > statement_timestamp());
comment on view getwork.blocked is
  'What a ranking query''s result is freed of: items held, put off or never to return. The only thing in this schema that the query role may read. statement_timestamp(), because clock_timestamp() is volatile and would keep the index from being used; now() would be the time of the lock.';
comment on column getwork.blocked.task_id is 'The task.';
comment on column getwork.blocked.item is 'The key of the item.';
drop index getwork.work_exhausted;
drop index getwork.work_closed;
drop index getwork.work_user;
drop index getwork.work_task;
drop index getwork.work_warn;
drop index getwork.work_lease;
alter table getwork.work drop constraint work_available_at;
update getwork.work set available_at = null where state = 'never';
alter table getwork.work
  drop constraint work_request_id_fkey,
  add constraint work_request_id_fkey foreign key (request_id) references getwork.work_requested,
  drop column redriven_by,
  drop column error,
  drop column exhausted,
  drop column to_others,
  drop column warn_at,
  add constraint work_check4 check ((available_at is not null) = (state in ('returned', 'failed')));
alter table getwork.work_requested
  drop column groups,
  drop column lease;
alter table getwork.candidate
  drop column exclusive,
  drop column slots;
drop table getwork.task_conflict;
alter table getwork.task_version
  drop column groups,
  drop column conflicts_with,
  drop column backoff,
  drop column max_attempts,
  drop column max_open,
  drop column slots;
-- Without its table an inbox becomes a task that finds nothing.
update getwork.task_version set query = 'select null::text as item where false' where query is null;
alter table getwork.task_version alter column query set not null;
