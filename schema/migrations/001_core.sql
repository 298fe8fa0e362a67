-- The tables of getwork. Read them in this order: task and task_state are the two locks, work_requested has the
-- requests, work says who holds what, run has each execution of a ranking query, candidate is the shelf that it left.
--
-- Unique indexes and checks refuse here what must never happen; the code above only avoids running into them.

create schema if not exists getwork;
comment on schema getwork is 'getwork: work handed out to many people at once. See ARCHITECTURE.md.';

-- ---------------------------------------------------------------------------------------------------------- task

create table getwork.task (
  id bigint generated always as identity primary key
);
comment on table getwork.task is
  'The run lock. Whoever locks a task''s row (for no key update skip locked) may run its heavy query. The row is never updated, so nothing else ever waits behind a query; settings are in task_version, what changes is in task_state.';
comment on column getwork.task.id is 'Names the task in every other table, also after its name was given to another.';

create table getwork.task_version (
  task_id        bigint not null references getwork.task,
  version        integer not null check (version >= 1),
  name           text not null,
  paused         boolean not null default false,
  title          text not null default '',
  description    text not null default '',
  query          text not null,
  query_timeout  interval not null default '2 minutes' check (query_timeout > interval '0'),
  fresh_for      interval not null default '0' check (fresh_for >= interval '0'),
  max_candidates integer not null default 1000 check (max_candidates between 1 and 1000000),
  max_request    integer not null default 5 check (max_request between 1 and 1000),
  lease          interval check (lease > interval '0'),
  rerun_after    interval not null default '60 seconds' check (rerun_after >= interval '1 second'),
  created_at     timestamptz not null default clock_timestamp(),
  created_by     text not null,
  primary key (task_id, version)
);
comment on table getwork.task_version is 'The settings of a task. Insert-only: every change of a task is a new version, and a run names the version that it used.';
comment on column getwork.task_version.name is 'What the task was called in this version; task_state says what it is called.';
comment on column getwork.task_version.task_id is 'The task.';
comment on column getwork.task_version.version is 'Counts from 1; an ETag of the API.';
comment on column getwork.task_version.title is 'What people are shown.';
comment on column getwork.task_version.description is 'What people are told of it.';
comment on column getwork.task_version.created_at is 'When the change was made.';
comment on column getwork.task_version.created_by is 'Who made it.';
comment on column getwork.task_version.paused is 'Whether it was paused in this version; task_state says whether it is.';
comment on column getwork.task_version.query is 'The ranking query: one SELECT that returns a column "item", best first. It need not leave out what is held or put off.';
comment on column getwork.task_version.query_timeout is 'The query is ended after this long, and its requests fail.';
comment on column getwork.task_version.fresh_for is 'How long the leftovers of a run may be handed out without another run. 0: never.';
comment on column getwork.task_version.max_candidates is 'How many ranked items a run keeps, after what is held or put off was left out.';
comment on column getwork.task_version.max_request is 'The most that one request may ask for.';
comment on column getwork.task_version.lease is 'How long work is held before it goes back by itself; null: until it is let go of.';
comment on column getwork.task_version.rerun_after is 'Lingering requests alone start a run at most this often.';

create table getwork.task_state (
  task_id      bigint primary key references getwork.task,
  name         text not null check (name ~ '^[a-z0-9][a-z0-9-]{0,62}$'),
  deleted_at   timestamptz,
  version      integer not null,
  paused       boolean not null default false,
  failures     integer not null default 0,
  failed_until timestamptz,
  last_error   text,
  retries      integer not null default 0,
  retry_at     timestamptz,
  retry_since  timestamptz,
  shelf_run    bigint,
  shelf_from   bigint not null default 1,
  shelf_cut    boolean not null default false,
  fresh_until  timestamptz,
  foreign key (task_id, version) references getwork.task_version,
  check ((failed_until is null) = (failures = 0)),
  check ((retry_at is null) = (retries = 0) and (retry_since is null) = (retries = 0))
) with (fillfactor = 50);
create unique index task_state_name on getwork.task_state (name) where deleted_at is null;
comment on table getwork.task_state is
  'The assign lock, and what changes of a task. Whoever makes a work row held locks this row first, for milliseconds; pause, change and delete are decided under the same lock.';
comment on column getwork.task_state.name is 'The slug by which people call the task; unique among tasks that are not deleted.';
comment on column getwork.task_state.task_id is 'The task.';
comment on column getwork.task_state.deleted_at is 'Set: the task is hidden and its name is free; history stays.';
comment on column getwork.task_state.version is 'The version in force.';
comment on column getwork.task_state.paused is 'Nothing is handed out; requests that wait go on waiting.';
comment on column getwork.task_state.failures is 'Failed runs in a row, by the query''s own fault.';
comment on column getwork.task_state.failed_until is 'Error back-off: until then new clicks that do not linger end at once with last_error.';
comment on column getwork.task_state.last_error is 'How the last failed run failed.';
comment on column getwork.task_state.retries is 'Runs in a row that failed by the world''s fault (a lost connection, a full disk).';
comment on column getwork.task_state.retry_at is 'Retry delay: until then nobody tries again; requests are recorded and wait.';
comment on column getwork.task_state.retry_since is 'When the first of those runs failed; too long ago, and the requests fail.';
comment on column getwork.task_state.shelf_run is 'The run whose candidates are on the shelf; null: no shelf.';
comment on column getwork.task_state.shelf_from is 'Candidates of a lower rank are gone. Only saves looking at them again: work says what is held.';
comment on column getwork.task_state.shelf_cut is 'The run found more than max_candidates: an empty shelf says nothing about the query.';
comment on column getwork.task_state.fresh_until is 'The shelf may be handed out until then, by the database''s clock.';

-- ----------------------------------------------------------------------------------------------------------- run

create table getwork.run (
  id          bigint generated always as identity primary key,
  task_id     bigint not null,
  version     integer not null,
  node        text not null,
  backend     integer,
  state       text not null default 'running' check (state in ('running', 'finished', 'failed', 'cancelled', 'lost')),
  started_at  timestamptz not null default clock_timestamp(),
  finished_at timestamptz,
  error       text,
  snapshot    pg_snapshot,
  seen_until  timestamptz,
  given       bigint,
  blocked     bigint,
  passed_over bigint,
  candidates  integer,
  cut         boolean,
  foreign key (task_id, version) references getwork.task_version,
  check ((state = 'running') = (finished_at is null)),
  check (state <> 'finished' or ((snapshot is null) <> (seen_until is null) and given is not null and blocked is not null and passed_over is not null and candidates is not null and cut is not null))
);
create unique index run_running on getwork.run (task_id) where state = 'running';
create index run_history on getwork.run (task_id, id);
alter table getwork.task_state add foreign key (shelf_run) references getwork.run;
comment on table getwork.run is 'One execution of a ranking query for those who wait. Written before the query starts; the next holder of the run lock closes what a dead node left running as lost.';
comment on index getwork.run_running is 'One run of a task at a time, as the last word.';
comment on column getwork.run.version is 'The version of the task whose query ran.';
comment on column getwork.run.id is 'Counts up; a later run has a higher one.';
comment on column getwork.run.task_id is 'The task.';
comment on column getwork.run.state is 'running; finished: its result was handed out; failed: the query or the world failed, see error; cancelled: nobody waited any more, or a manager or a shutdown stopped it; lost: its node died.';
comment on column getwork.run.started_at is 'When the lock was held, before the query.';
comment on column getwork.run.finished_at is 'When its round was written.';
comment on column getwork.run.node is 'The node that ran it.';
comment on column getwork.run.backend is 'The process id of the server process that holds the run lock for it.';
comment on column getwork.run.error is 'PostgreSQL''s message, when it failed.';
comment on column getwork.run.snapshot is 'What the query saw. Work closed by a transaction that is not visible in it is not handed out from this run.';
comment on column getwork.run.seen_until is 'Instead of the snapshot, for a query that ran on another server: work closed after this time is not handed out from this run.';
comment on column getwork.run.given is 'Rows that the query gave.';
comment on column getwork.run.blocked is 'Of them: held, put off or never when the query ran.';
comment on column getwork.run.passed_over is 'Of them: the item was null, empty, too long or repeated.';
comment on column getwork.run.candidates is 'What remained, at most max_candidates.';
comment on column getwork.run.cut is 'More than max_candidates remained.';

create table getwork.candidate (
  run_id  bigint not null references getwork.run on delete cascade,
  rank    bigint not null,
  item    text collate "C" not null,
  details json not null,
  primary key (run_id, rank)
);
comment on table getwork.candidate is 'The shelf: ranked items of a run that were not handed out in its own round. Kept only when the task''s fresh_for is above 0; old rows are removed in the background.';
comment on column getwork.candidate.run_id is 'The run that ranked it.';
comment on column getwork.candidate.rank is 'Its place: which row of the query it was.';
comment on column getwork.candidate.item is 'Its key.';
comment on column getwork.candidate.details is 'What else the query said of it.';

-- ------------------------------------------------------------------------------------------------- work_requested

create sequence getwork.round;
comment on sequence getwork.round is 'Numbers the rounds: each transaction that answers requests takes one, and announces it.';

create table getwork.work_requested (
  id           bigint generated always as identity primary key,
  task_id      bigint not null references getwork.task,
  user_name    text not null,
  instance     text not null default '',
  wanted       integer not null check (wanted >= 1),
  requested    integer not null,
  assigned     integer not null default 0,
  state        text not null default 'pending',
  reason       text check (reason in ('no_match', 'all_held', 'rules', 'at_limit', 'paused')),
  error        text,
  created_at   timestamptz not null default clock_timestamp(),
  linger_until timestamptz,
  look_after   timestamptz,
  completed_at timestamptz,
  round_id     bigint,
  run_id       bigint references getwork.run,
  check (case state
           when 'pending'   then requested = wanted and assigned = 0
           when 'assigned'  then requested = wanted and assigned = wanted
           when 'partial'   then requested = assigned and assigned > 0 and assigned < wanted
           when 'none'      then requested = 0 and assigned = 0 and reason is not null
           when 'failed'    then requested = 0 and assigned = 0 and error is not null
           when 'cancelled' then requested = 0 and assigned = 0
           else false
         end),
  check ((state = 'pending') = (completed_at is null))
) with (fillfactor = 70);
create unique index work_requested_pending_holder on getwork.work_requested (user_name, instance, task_id) where state = 'pending';
create index work_requested_pending on getwork.work_requested (task_id, id) where state = 'pending';
create index work_requested_holder on getwork.work_requested (task_id, user_name, instance, id);
create index work_requested_round on getwork.work_requested (round_id) where round_id is not null;
comment on table getwork.work_requested is
  'One holder''s "get work" on one task. requested and assigned tell its story: (n, 0) waiting; (n, n) assigned; (m, m) with m below wanted: less was there; (0, 0) nothing there.';
comment on index getwork.work_requested_pending_holder is 'One holder has at most one pending request per task, whatever tab or node it came from.';
comment on column getwork.work_requested.instance is 'For programs: which copy; with the user it names the holder.';
comment on column getwork.work_requested.id is 'The order of being served.';
comment on column getwork.work_requested.task_id is 'The task.';
comment on column getwork.work_requested.user_name is 'Who asked.';
comment on column getwork.work_requested.state is 'pending, and then one of: assigned (all that was wanted), partial (less, which was all there is), none (nothing, see reason), failed (see error), cancelled (by its owner).';
comment on column getwork.work_requested.created_at is 'When it was recorded.';
comment on column getwork.work_requested.completed_at is 'When it ended.';
comment on column getwork.work_requested.wanted is 'How many were asked for; never changes.';
comment on column getwork.work_requested.requested is 'How many are still asked for: lowered to what there was.';
comment on column getwork.work_requested.assigned is 'How many were handed out.';
comment on column getwork.work_requested.reason is 'Why nothing, or less, was handed out.';
comment on column getwork.work_requested.error is 'How the heavy query failed.';
comment on column getwork.work_requested.linger_until is 'While nothing can be handed out the request stays pending until then; null: it ends at once.';
comment on column getwork.work_requested.look_after is 'Null: no round has read it yet. Set by a round that read it and left it lingering: the next time that it alone is a reason to run.';
comment on column getwork.work_requested.round_id is 'The round that answered it.';
comment on column getwork.work_requested.run_id is 'The run whose result answered it.';

create table getwork.idempotency_key (
  task_id    bigint not null references getwork.task,
  user_name  text not null,
  key        text not null,
  body       text not null,
  request_id bigint references getwork.work_requested on delete cascade,
  created_at timestamptz not null default clock_timestamp(),
  primary key (task_id, user_name, key)
);
create index idempotency_key_age on getwork.idempotency_key (created_at);
create index idempotency_key_request on getwork.idempotency_key (request_id);
comment on table getwork.idempotency_key is 'Makes a repeated click safe: a key belongs to a user and a task for 24 hours, and answers with the request that it first got.';
comment on column getwork.idempotency_key.body is 'What was asked for with the key; another body under the same key is refused.';
comment on column getwork.idempotency_key.task_id is 'The task.';
comment on column getwork.idempotency_key.user_name is 'Who used it.';
comment on column getwork.idempotency_key.key is 'The Idempotency-Key header.';
comment on column getwork.idempotency_key.created_at is 'It is forgotten 24 hours later.';
comment on column getwork.idempotency_key.request_id is 'Null only inside the transaction that records both.';

-- ---------------------------------------------------------------------------------------------------------- work

create table getwork.work (
  id               bigint generated always as identity primary key,
  task_id          bigint not null references getwork.task,
  item             text collate "C" not null check (octet_length(item) between 1 and 200),
  slot             integer not null default 1 check (slot >= 1),
  exclusive        text,
  user_name        text not null,
  instance         text not null default '',
  request_id       bigint references getwork.work_requested,
  run_id           bigint references getwork.run,
  rank             bigint,
  details          json not null default '{}',
  attempt          integer not null default 1,
  assigned_at      timestamptz not null default clock_timestamp(),
  lease            interval,
  lease_expires_at timestamptz,
  state            text not null default 'held' check (state in ('held', 'completed', 'returned', 'never', 'failed', 'expired', 'reassigned')),
  closed_at        timestamptz,
  closed_by        text,
  closed_xid       xid8,
  after            interval,
  available_at     timestamptz,
  note             text check (octet_length(note) <= 4096),
  check ((state = 'held') = (closed_at is null)),
  check ((state = 'held') = (closed_xid is null)),
  check ((lease is null) = (lease_expires_at is null)),
  check ((state = 'returned') = (after is not null)),
  check (after between interval '0' and interval '72 hours'),
  check ((available_at is not null) = (state in ('returned', 'failed')))
) with (fillfactor = 80);
create unique index work_held_slot on getwork.work (task_id, item, slot) where state = 'held';
create unique index work_held_holder on getwork.work (task_id, item, user_name, instance) where state = 'held';
create unique index work_held_exclusive on getwork.work (task_id, exclusive) where state = 'held' and exclusive is not null;
create index work_blocking on getwork.work (task_id, item, available_at) where state in ('held', 'never', 'returned', 'failed');
create index work_item on getwork.work (task_id, item, id);
create index work_pipeline on getwork.work (user_name, instance, id) where state = 'held';
create index work_request on getwork.work (request_id) where request_id is not null;
comment on table getwork.work is 'One item of one task held by one holder, and how it was let go of.';
comment on index getwork.work_held_slot is 'An item is held by no more holders than it has places. The last word on who holds what.';
comment on index getwork.work_held_holder is 'A holder holds an item at most once.';
comment on index getwork.work_held_exclusive is 'Of an exclusive group one member is held at a time.';
comment on column getwork.work.item is 'The key of the thing to be worked on, e.g. a loan: the query''s "item" as text. Compared byte by byte, whatever collation the query''s column has.';
comment on column getwork.work.slot is 'Which of the item''s places.';
comment on column getwork.work.id is 'Names this holding of the item: the item''s next holding has another.';
comment on column getwork.work.task_id is 'The task.';
comment on column getwork.work.user_name is 'Who holds it, or held it.';
comment on column getwork.work.instance is 'For programs: which copy; with the user it names the holder.';
comment on column getwork.work.exclusive is 'The group of which one member is held at a time.';
comment on column getwork.work.request_id is 'The request that it answered.';
comment on column getwork.work.run_id is 'The run that found it.';
comment on column getwork.work.assigned_at is 'When it was handed out.';
comment on column getwork.work.state is 'held, and then one of: completed; returned, to be handed out again from available_at on; never, for this task; failed; expired, its lease ran out; reassigned, to another.';
comment on column getwork.work.closed_at is 'When it was let go of.';
comment on column getwork.work.closed_by is 'Who let go of it: the holder, or a manager.';
comment on column getwork.work.note is 'What they said of it.';
comment on column getwork.work.rank is 'Its place in the run that found it.';
comment on column getwork.work.details is 'What else the query said of it. json, not jsonb, which would forget the order of the columns.';
comment on column getwork.work.attempt is 'Which try at this item it is.';
comment on column getwork.work.lease is 'How long an extension lasts; null: no lease.';
comment on column getwork.work.lease_expires_at is 'Until then it is held, by the database''s clock.';
comment on column getwork.work.closed_xid is 'The transaction that closed it: compared with a run''s snapshot, never by time.';
comment on column getwork.work.after is 'What a return asked for; kept so that repeating it can be recognised.';
comment on column getwork.work.available_at is 'Put off until then.';

create view getwork.blocked as
  select task_id, item
  from getwork.work
  where state in ('held', 'never', 'returned', 'failed')
    and (available_at is null or available_at > statement_timestamp());
comment on view getwork.blocked is
  'What a ranking query''s result is freed of: items held, put off or never to return. The only thing in this schema that the query role may read. statement_timestamp(), because clock_timestamp() is volatile and would keep the index from being used; now() would be the time of the lock.';
comment on column getwork.blocked.task_id is 'The task.';
comment on column getwork.blocked.item is 'The key of the item.';

---- create above / drop below ----

drop view getwork.blocked;
drop table getwork.work;
drop table getwork.idempotency_key;
drop table getwork.work_requested;
drop sequence getwork.round;
drop table getwork.candidate;
alter table getwork.task_state drop constraint task_state_shelf_run_fkey;
drop table getwork.run;
drop table getwork.task_state;
drop table getwork.task_version;
drop table getwork.task;
