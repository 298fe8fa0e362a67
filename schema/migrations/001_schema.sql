-- The tables of getwork. Read them in this order: task and task_state are the two locks, run has each execution of a ranking query,
-- candidate is the shelf that it left, work_requested has the requests, work says who holds what, and item is the inbox. principal,
-- session and token are people and programs, and how they come in. audit remembers what they did. hook and hook_event are what
-- others are told of it.
--
-- Unique indexes and checks refuse here what must never happen; the code above only avoids running into them.

create schema if not exists getwork;
comment on schema getwork is 'getwork: work handed out to many people at once. See ARCHITECTURE.md.';

-- --------------------------------------------------------------------------------------------------------- tasks

create table getwork.task (
  id bigint generated always as identity primary key
);
comment on table getwork.task is
  'The run lock. Whoever locks a task''s row (for no key update skip locked) may run its heavy query. The row is never updated, so nothing else ever waits behind a query; settings are in task_version, what changes is in task_state.';
comment on column getwork.task.id is 'Names the task in every other table, also after its name was given to another.';

create table getwork.task_version (
  task_id        bigint not null references getwork.task,
  version        integer not null check (version >= 1),
  created_at     timestamptz not null default clock_timestamp(),
  created_by     text not null,
  name           text not null,
  paused         boolean not null default false,
  title          text not null default '',
  description    text not null default '',
  position       integer,
  display        jsonb check (jsonb_typeof(display) = 'object'),
  groups         text[] not null default '{}',
  query          text,
  query_timeout  interval not null default '2 minutes' check (query_timeout > interval '0'),
  rerun_after    interval not null default '60 seconds' check (rerun_after >= interval '1 second'),
  max_candidates integer not null default 1000 check (max_candidates between 1 and 1000000),
  fresh_for      interval not null default '0' check (fresh_for >= interval '0'),
  stale_for      interval not null default '0' check (stale_for >= interval '0'),
  recheck        text,
  max_request    integer not null default 5 check (max_request between 1 and 1000),
  max_open       integer check (max_open >= 1),
  slots          integer not null default 1 check (slots between 1 and 10000),
  lease          interval check (lease > interval '0'),
  max_attempts   integer check (max_attempts >= 1),
  backoff        interval not null default '30 seconds' check (backoff > interval '0'),
  conflicts_with bigint[] not null default '{}',
  primary key (task_id, version)
);
comment on table getwork.task_version is 'The settings of a task. Insert-only: every change of a task is a new version, and a run names the version that it used.';
comment on column getwork.task_version.task_id is 'The task.';
comment on column getwork.task_version.version is 'Counts from 1; an ETag of the API.';
comment on column getwork.task_version.created_at is 'When the change was made.';
comment on column getwork.task_version.created_by is 'Who made it.';
comment on column getwork.task_version.name is 'What the task was called in this version; task_state says what it is called.';
comment on column getwork.task_version.paused is 'Whether it was paused in this version; task_state says whether it is.';
comment on column getwork.task_version.title is 'What people are shown.';
comment on column getwork.task_version.description is 'What people are told of it.';
comment on column getwork.task_version.position is 'The task''s place among those that people see, lowest first. Null: after those, by title.';
comment on column getwork.task_version.display is 'How an item is shown to people: title, labels, formats, order, link. Null: by the types and names of its details.';
comment on column getwork.task_version.groups is 'Who may see and take the task: members of any of these. Empty: everybody.';
comment on column getwork.task_version.query is 'The ranking query: one SELECT that returns a column "item", best first. It need not leave out what is held or put off. Null: an inbox, whose items are those in the table item.';
comment on column getwork.task_version.query_timeout is 'The query is ended after this long, and its requests fail.';
comment on column getwork.task_version.rerun_after is 'Lingering requests alone start a run at most this often.';
comment on column getwork.task_version.max_candidates is 'How many ranked items a run keeps, after what is held or put off was left out.';
comment on column getwork.task_version.fresh_for is 'How long the leftovers of a run may be handed out without another run. 0: never.';
comment on column getwork.task_version.stale_for is 'How long a shelf that has expired may go on serving while its refresh runs. 0: not at all.';
comment on column getwork.task_version.recheck is 'A cheap query that says of a few items whether they still match: one SELECT on $1 text[], their keys, that returns those in a column "item". Null: none; what a run found is handed out while it is fresh.';
comment on column getwork.task_version.max_request is 'The most that one request may ask for.';
comment on column getwork.task_version.max_open is 'The most that one user may hold of the task; null: no limit.';
comment on column getwork.task_version.slots is 'How many holders an item may have at a time, where the item itself does not say.';
comment on column getwork.task_version.lease is 'How long work is held before it goes back by itself; null: until it is let go of.';
comment on column getwork.task_version.max_attempts is 'An item whose attempts failed, or whose leases ran out, so often is never handed out again until it is redriven; null: no limit.';
comment on column getwork.task_version.backoff is 'After the first failed attempt an item waits this long, after each further one twice as long.';
comment on column getwork.task_version.conflicts_with is 'Tasks of which nobody may hold or have completed the same item (four eyes). It counts both ways; task_conflict has what is in force.';

create table getwork.task_pause (
  task_id bigint not null,
  version integer not null,
  n       integer not null,
  paused  boolean not null,
  at      timestamptz not null default clock_timestamp(),
  by      text not null,
  primary key (task_id, version, n)
);
comment on table getwork.task_pause is 'When a task was paused and resumed, by a call that changed nothing else. Insert-only. Other pauses are in task_version.';
comment on column getwork.task_pause.task_id is 'The task.';
comment on column getwork.task_pause.version is 'Its version at that time.';
comment on column getwork.task_pause.n is 'Counts from 1 for each task; a later one has a higher number.';
comment on column getwork.task_pause.paused is 'Whether it was paused; otherwise it was resumed.';
comment on column getwork.task_pause.at is 'When.';
comment on column getwork.task_pause.by is 'Who did it.';

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

create table getwork.task_state (
  task_id      bigint primary key references getwork.task,
  name         text not null check (name ~ '^[a-z0-9][a-z0-9-]{0,62}$'),
  version      integer not null,
  paused       boolean not null default false,
  deleted_at   timestamptz,
  used_at      timestamptz,
  failures     integer not null default 0,
  failed_until timestamptz,
  last_error   text,
  retries      integer not null default 0,
  retry_at     timestamptz,
  retry_since  timestamptz,
  shelf_run    bigint, -- references run, below
  shelf_from   bigint not null default 1,
  shelf_left   bigint not null default 0,
  shelf_cut    boolean not null default false,
  fresh_until  timestamptz,
  expires_at   timestamptz,
  usual        interval,
  longest      interval,
  foreign key (task_id, version) references getwork.task_version,
  check ((failed_until is null) = (failures = 0)),
  check ((retry_at is null) = (retries = 0) and (retry_since is null) = (retries = 0))
) with (fillfactor = 50);
create unique index task_state_name on getwork.task_state (name) where deleted_at is null;
comment on table getwork.task_state is 'The assign lock, and what changes of a task. Whoever makes a work row held locks this row first, for milliseconds; pause, change and delete are decided under the same lock.';
comment on column getwork.task_state.task_id is 'The task.';
comment on column getwork.task_state.name is 'The slug by which people call the task; unique among tasks that are not deleted.';
comment on column getwork.task_state.version is 'The version in force.';
comment on column getwork.task_state.paused is 'Nothing is handed out; requests that wait go on waiting.';
comment on column getwork.task_state.deleted_at is 'Set: the task is hidden and its name is free; history stays.';
comment on column getwork.task_state.used_at is 'When a round last answered somebody, or first read who lingers. A shelf is kept fresh for a task that was used within its last fresh_for.';
comment on column getwork.task_state.failures is 'Failed runs in a row, by the query''s own fault.';
comment on column getwork.task_state.failed_until is 'Error back-off: until then new clicks that do not linger end at once with last_error.';
comment on column getwork.task_state.last_error is 'How the last failed run failed.';
comment on column getwork.task_state.retries is 'Runs in a row that failed by the world''s fault (a lost connection, a full disk).';
comment on column getwork.task_state.retry_at is 'Retry delay: until then nobody tries again; requests are recorded and wait.';
comment on column getwork.task_state.retry_since is 'When the first of those runs failed; too long ago, and the requests fail.';
comment on column getwork.task_state.shelf_run is 'The run whose candidates are on the shelf; null: no shelf.';
comment on column getwork.task_state.shelf_from is 'Candidates of a lower rank are gone. Only saves looking at them again: work says what is held.';
comment on column getwork.task_state.shelf_left is 'How many candidates are left on the shelf, as far as rounds have counted; what is held, work says.';
comment on column getwork.task_state.shelf_cut is 'The run found more than max_candidates: an empty shelf says nothing about the query.';
comment on column getwork.task_state.fresh_until is 'The shelf may be handed out until then, by the database''s clock.';
comment on column getwork.task_state.expires_at is 'When the shelf expires by itself. It may serve a little longer (stale_for) only if fresh_until is still the same: otherwise it has ended early, and a request may wait that none may overtake. Null: it may not, because its refresh has failed.';
comment on column getwork.task_state.usual is 'How long a run of the query in force takes: the median of the last five. Null: none has finished.';
comment on column getwork.task_state.longest is 'The longest of those.';

-- ------------------------------------------------------------------------------------------------ runs, the shelf

-- Snapshots and transaction ids have a meaning only within one life of one cluster. A run records the life that it was made in.
--
-- A session reads this once, because the system's identifier is in a file. A session that writes ends with its server, before
-- another life of the cluster begins. Behind a transaction pooler, too, the value belongs to the server's session.
create function getwork.cluster() returns text language plpgsql volatile as $$
declare
  known text := pg_catalog.current_setting('getwork_cluster.life', true);
begin
  if known is null or known = '' then
    begin
      known := (select system_identifier from pg_catalog.pg_control_system())
        || '/' || pg_catalog.left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 8);
    exception when insufficient_privilege or feature_not_supported then
      known := 'not told'; -- some hosted PostgreSQL services do not show it
    end;
    perform pg_catalog.set_config('getwork_cluster.life', known, false);
  end if;
  return known;
end $$;
comment on function getwork.cluster() is
  'The life of the cluster that this session is in: the system''s identifier, and the timeline from the name of the WAL file that is written now. pg_control_checkpoint() shows the timeline before until the first checkpoint after a promotion.';

create table getwork.run (
  id          bigint generated always as identity primary key,
  task_id     bigint not null,
  version     integer not null,
  node        text not null,
  backend     integer,
  cluster     text default getwork.cluster(),
  state       text not null default 'running' check (state in ('running', 'finished', 'failed', 'cancelled', 'lost')),
  started_at  timestamptz not null default clock_timestamp(),
  finished_at timestamptz,
  error       text,
  snapshot    pg_snapshot,
  seen_until  timestamptz,
  given       bigint,
  blocked     bigint,
  passed_over bigint,
  left_out    bigint,
  candidates  integer,
  cut         boolean,
  foreign key (task_id, version) references getwork.task_version,
  check ((state = 'running') = (finished_at is null)),
  constraint run_finished check (state <> 'finished' or (snapshot is not null or seen_until is not null) and given is not null and blocked is not null and passed_over is not null and candidates is not null and cut is not null)
);
create unique index run_running on getwork.run (task_id) where state = 'running';
create index run_history on getwork.run (task_id, id);
create index run_started on getwork.run (started_at);
alter table getwork.task_state add foreign key (shelf_run) references getwork.run;
comment on table getwork.run is 'One execution of a ranking query for those who wait. Written before the query starts; the next holder of the run lock closes what a dead node left running as lost.';
comment on column getwork.run.id is 'Counts up; a later run has a higher one.';
comment on column getwork.run.task_id is 'The task.';
comment on column getwork.run.version is 'The version of the task whose query ran.';
comment on column getwork.run.node is 'The node that ran it.';
comment on column getwork.run.backend is 'The process id of the server process that holds the run lock for it.';
comment on column getwork.run.cluster is 'The life of the cluster that it was made in. In another one, after a restore, a switch-over or a fail-over, its snapshot says nothing, and what it left is not fresh.';
comment on column getwork.run.state is 'running; finished: its result was handed out; failed: the query or the world failed, see error; cancelled: nobody waited any more, or a manager or a shutdown stopped it; lost: its node died.';
comment on column getwork.run.started_at is 'When the lock was held, before the query.';
comment on column getwork.run.finished_at is 'When its round was written.';
comment on column getwork.run.error is 'PostgreSQL''s message, when it failed.';
comment on column getwork.run.snapshot is 'What the query saw. Work closed by a transaction that is not visible in it is not handed out from this run. For a query that ran on a query database: what was there on the primary before it began.';
comment on column getwork.run.seen_until is 'For a query that ran on a query database, which may lag behind: work closed after this time is not handed out from this run either.';
comment on column getwork.run.given is 'Rows that the query gave.';
comment on column getwork.run.blocked is 'Of them: held, put off or never when the query ran.';
comment on column getwork.run.passed_over is 'Of them: the item was null, empty, too long or repeated.';
comment on column getwork.run.left_out is 'Items of the result whose details are beyond the limits, and that are handed out without them. Null: the run did not finish.';
comment on column getwork.run.candidates is 'What remained, at most max_candidates.';
comment on column getwork.run.cut is 'More than max_candidates remained.';
comment on index getwork.run_running is 'One run of a task at a time, as the last word.';
comment on index getwork.run_started is 'The runs of the last hours, of all tasks.';

-- It does not reference its run, which is never removed: see work.
create table getwork.candidate (
  run_id    bigint not null,
  rank      bigint not null,
  item      text collate "C" not null,
  slots     integer not null default 1,
  exclusive text,
  details   json not null,
  primary key (run_id, rank)
);
comment on table getwork.candidate is 'The shelf: ranked items of a run that were not handed out in its own round. Kept only when the task''s fresh_for is above 0; old rows are removed in the background.';
comment on column getwork.candidate.run_id is 'The run that ranked it.';
comment on column getwork.candidate.rank is 'Its place: which row of the query it was.';
comment on column getwork.candidate.item is 'Its key.';
comment on column getwork.candidate.slots is 'How many holders it may have at a time.';
comment on column getwork.candidate.exclusive is 'Its group, of which one member is held at a time.';
comment on column getwork.candidate.details is 'What else the query said of it.';

-- Written once for each shelf. An index of the candidates by their keys is written somewhere else for each candidate, and took half of
-- the time of putting up a shelf.
create table getwork.candidate_place (
  run_id bigint not null,
  bucket integer not null,
  ranks  bigint[] not null,
  primary key (run_id, bucket)
);
comment on table getwork.candidate_place is 'Where the candidates of a run are, by their keys: a claim, or an explanation, finds its item here, however much is on the shelf. Removed with the candidates.';
comment on column getwork.candidate_place.run_id is 'The run that ranked them.';
comment on column getwork.candidate_place.bucket is 'Of the item''s key, see candidate_bucket.';
comment on column getwork.candidate_place.ranks is 'Those of all candidates in this bucket.';

-- A million candidates are 61 a bucket.
create function getwork.candidate_bucket(item text) returns integer language sql immutable parallel safe as $$
  select pg_catalog.hashtext(item collate "C") & 16383
$$;

create function getwork.shelved(run bigint, key text) returns setof getwork.candidate language sql stable as $$
  select c.*
  from getwork.candidate_place p
  cross join lateral pg_catalog.unnest(p.ranks) as at (rank)
  join getwork.candidate c on c.run_id = p.run_id and c.rank = at.rank
  where p.run_id = shelved.run and p.bucket = getwork.candidate_bucket(shelved.key) and c.item = shelved.key
  union all
  select c.*
  from getwork.candidate c
  where c.run_id = shelved.run and c.item = shelved.key
    and not exists (select from getwork.candidate_place p where p.run_id = shelved.run)
$$;
comment on function getwork.shelved(bigint, text) is 'The candidate with this key that the run put on the shelf. A short shelf has no places, and is read whole.';

-- ------------------------------------------------------------------------------------------------------- requests

create sequence getwork.round;
comment on sequence getwork.round is 'Numbers the rounds: each transaction that answers requests takes one, and announces it.';

create table getwork.work_requested (
  id           bigint generated always as identity primary key,
  task_id      bigint not null references getwork.task,
  user_name    text not null,
  instance     text not null default '',
  groups       text[],
  credential   text,
  valid_until  timestamptz,
  traceparent  text,
  key          text,
  key_scope    bigint,
  key_body     text,
  wanted       integer not null check (wanted >= 1),
  requested    integer not null,
  assigned     integer not null default 0,
  lease        interval check (lease > interval '0'),
  state        text not null default 'pending',
  reason       text check (reason in ('no_match', 'all_held', 'rules', 'at_limit', 'paused')),
  error        text,
  created_at   timestamptz not null default clock_timestamp(),
  linger_until timestamptz,
  look_after   timestamptz,
  completed_at timestamptz,
  round_id     bigint,
  run_id       bigint,
  ranked_at    timestamptz,
  stale        boolean not null default false,
  check (case state
           when 'pending'   then requested = wanted and assigned = 0
           when 'assigned'  then requested = wanted and assigned = wanted
           when 'partial'   then requested = assigned and assigned > 0 and assigned < wanted
           when 'none'      then requested = 0 and assigned = 0 and reason is not null
           when 'failed'    then requested = 0 and assigned = 0 and error is not null
           when 'cancelled' then requested = 0 and assigned = 0
           else false
         end),
  check ((state = 'pending') = (completed_at is null)),
  check ((key is null) = (key_scope is null) and (key is null) = (key_body is null))
) with (fillfactor = 70,
  -- A round reads an index from its beginning, past an entry for each request that was answered since the last vacuum. By default
  -- autovacuum comes when a fifth of the table is dead, which is two weeks' work beside a history of ninety days, and even then
  -- leaves indexes alone if the dead rows are on fewer than 2 % of the table's pages, as they are where the oldest rows go first. The
  -- same holds for work, item and hook_event. A thousand entries are a few pages of an index: smaller tables are left in peace.
  autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.02, vacuum_index_cleanup = on);
create unique index work_requested_pending_holder on getwork.work_requested (user_name, instance, task_id) where state = 'pending';
create index work_requested_pending on getwork.work_requested (task_id, id) where state = 'pending';
create index work_requested_unread on getwork.work_requested (task_id, id) where state = 'pending' and (look_after is null or linger_until is null);
-- Few of thousands of waiting requests linger, and every click asks when the next lingering one is due.
create index work_requested_look on getwork.work_requested (task_id, look_after) where state = 'pending' and look_after is not null;
create index work_requested_linger on getwork.work_requested (task_id, linger_until) where state = 'pending' and linger_until is not null;
create index work_requested_credential on getwork.work_requested (credential) where state = 'pending' and credential is not null;
create index work_requested_valid on getwork.work_requested (valid_until) where state = 'pending' and valid_until is not null;
create unique index work_requested_key on getwork.work_requested (user_name, key_scope, key) where key is not null;
create index work_requested_keyed on getwork.work_requested (created_at) where key is not null;
create index work_requested_round on getwork.work_requested (round_id) where round_id is not null;
-- BRIN has an entry for a range of pages, not for each row, so it hardly slows a click. Work that was handed out since a time
-- is either held, or was closed since then and is found by work_closed.
create index work_requested_created on getwork.work_requested using brin (created_at) with (pages_per_range = 32, autosummarize = on);
comment on table getwork.work_requested is 'One holder''s "get work" on one task. requested and assigned tell its story: (n, 0) waiting; (n, n) assigned; (m, m) with m below wanted: less was there; (0, 0) nothing there.';
comment on column getwork.work_requested.id is 'The order of being served.';
comment on column getwork.work_requested.task_id is 'The task.';
comment on column getwork.work_requested.user_name is 'Who asked.';
comment on column getwork.work_requested.instance is 'For programs: which copy; with the user it names the holder.';
comment on column getwork.work_requested.groups is 'The groups that its user was in; null: a manager, who needs none.';
comment on column getwork.work_requested.credential is 'What its user asked with: s: and the public id of a session, t: and the id of a token, j: or p: and the id of a principal for a JWT or a proxy, and a dot and the number of its rebinds if there were any. Null: --auth dev.';
comment on column getwork.work_requested.valid_until is 'When that credential ends by itself; the request is not served afterwards. Null: it does not.';
comment on column getwork.work_requested.traceparent is 'The span of its click (W3C Trace Context), so that nodes that answer and push it continue its trace. Null: tracing was off, or the click not sampled.';
comment on column getwork.work_requested.key is 'The Idempotency-Key of the click that made it: with this key the user''s clicks on the same get this request for 24 hours. Null: it had none, or that time is over.';
comment on column getwork.work_requested.key_scope is 'What the key is for: the task that was asked for, 0 for all of them. It never changes.';
comment on column getwork.work_requested.key_body is 'What was asked for with the key; another body under the same key is refused.';
comment on column getwork.work_requested.wanted is 'How many were asked for; never changes.';
comment on column getwork.work_requested.requested is 'How many are still asked for: lowered to what there was.';
comment on column getwork.work_requested.assigned is 'How many were handed out.';
comment on column getwork.work_requested.lease is 'How long its work is to be held, where the task does not say; an agent''s wish.';
comment on column getwork.work_requested.state is 'pending, and then one of: assigned (all that was wanted), partial (less, which was all there is), none (nothing, see reason), failed (see error), cancelled (by its owner or a manager, or because what it stood on has ended).';
comment on column getwork.work_requested.reason is 'Why nothing, or less, was handed out; of one that lingers, why nothing has been so far.';
comment on column getwork.work_requested.error is 'How the heavy query failed.';
comment on column getwork.work_requested.created_at is 'When it was recorded.';
comment on column getwork.work_requested.linger_until is 'While nothing can be handed out the request stays pending until then; null: it ends at once.';
comment on column getwork.work_requested.look_after is 'Null: no round has read it since it was recorded or the task was changed. Otherwise when it alone is next a reason to run: set by a round that left it lingering, or left it to wait for a run.';
comment on column getwork.work_requested.completed_at is 'When it ended.';
comment on column getwork.work_requested.round_id is 'The round that answered it.';
comment on column getwork.work_requested.run_id is 'The run whose result answered it, or whose failure ended it. Null: it waits, or no run had a part in its end.';
comment on column getwork.work_requested.ranked_at is 'The age of the ranking that its items came from: the query saw everything that was committed before. Null: it got nothing, or its items were pushed.';
comment on column getwork.work_requested.stale is 'Its items came from a shelf that had expired, while its refresh ran.';
comment on index getwork.work_requested_pending_holder is 'One holder has at most one pending request per task, whatever tab or node it came from.';
comment on index getwork.work_requested_key is 'A key makes one request, whatever nodes its clicks come to.';
comment on index getwork.work_requested_keyed is 'Keys whose time is over.';
comment on index getwork.work_requested_unread is 'Waiting requests that no round has left lingering yet, and those that do not linger.';
comment on index getwork.work_requested_credential is 'What waits under a credential that ends.';
comment on index getwork.work_requested_valid is 'Whose credential ends next.';
comment on index getwork.work_requested_created is 'The requests of the last hours are found here. Only for counting: no round and no click reads it.';

-- ---------------------------------------------------------------------------------------------------------- work

-- It has no foreign keys, since looking up three rows for each was half of what writing work cost. They couldn't break: tasks and runs
-- are never removed, and whoever removes a request takes it from its work first.
create table getwork.work (
  id               bigint generated always as identity primary key,
  task_id          bigint not null,
  item             text collate "C" not null check (octet_length(item) between 1 and 200),
  slot             integer not null default 1 check (slot >= 1),
  exclusive        text,
  details          json not null default '{}',
  user_name        text not null,
  instance         text not null default '',
  request_id       bigint,
  run_id           bigint,
  rank             bigint,
  attempt          integer not null default 1,
  assigned_at      timestamptz not null default clock_timestamp(),
  lease            interval,
  lease_expires_at timestamptz,
  warn_at          timestamptz,
  state            text not null default 'held' check (state in ('held', 'completed', 'returned', 'never', 'failed', 'expired', 'reassigned')),
  closed_at        timestamptz,
  closed_by        text,
  closed_xid       xid8,
  note             text check (octet_length(note) <= 4096),
  error            text check (octet_length(error) <= 4096),
  after            interval,
  available_at     timestamptz,
  to_others        boolean not null default false,
  exhausted        boolean not null default false,
  redriven_by      text,
  check ((state = 'held') = (closed_at is null)),
  check ((state = 'held') = (closed_xid is null)),
  check ((lease is null) = (lease_expires_at is null)),
  check ((state = 'returned') = (after is not null)),
  check (after between interval '0' and interval '72 hours'),
  constraint work_available_at check ((available_at is not null) = (state in ('returned', 'failed') or redriven_by is not null)),
  constraint work_exhausted check (not exhausted or state = 'never'),
  constraint work_redriven check (redriven_by is null or state = 'never')
) with (fillfactor = 80,
  -- It has more indexes than item, and a vacuum reads them all.
  autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.02, vacuum_index_cleanup = on);

-- Held work and work that is over have indexes of their own: handing out an item adds an entry to those of held work, and closing it to
-- those of the past. A read of both is a union of two look-ups in one statement.
create unique index work_held_slot on getwork.work (task_id, item, slot) where state = 'held';
create unique index work_holder on getwork.work (user_name, instance, task_id, item) where state = 'held';
create unique index work_held_exclusive on getwork.work (task_id, exclusive) where state = 'held' and exclusive is not null;
create index work_due on getwork.work ((least(warn_at, lease_expires_at))) where state = 'held' and lease_expires_at is not null;

create index work_put_off on getwork.work (task_id, item, (coalesce(case when not to_others then available_at end, 'infinity'::timestamptz)))
  where state in ('never', 'returned', 'failed');
create index work_completed on getwork.work (task_id, item, user_name) where state = 'completed';
create index work_exhausted on getwork.work (task_id, item) where exhausted and redriven_by is null;
create index work_past_item on getwork.work (task_id, item, id) where state <> 'held';
-- While a table has no statistics, every index that begins with the task looks as good to the planner as the right one, and
-- it keeps a plan once made. So this index, for reading history, begins with an expression that no other query has. PostgreSQL takes no
-- statistics of an expression from a partial index.
create index work_past_task on getwork.work ((task_id + 0), id) where state <> 'held';
create statistics getwork.work_of_task on (task_id + 0) from getwork.work;
create index work_past_user on getwork.work (user_name, id) where state <> 'held';

create index work_closed on getwork.work (closed_at) where closed_at is not null;
create index work_request on getwork.work (request_id) where request_id is not null;
comment on table getwork.work is 'One item of one task held by one holder, and how it was let go of.';
comment on column getwork.work.id is 'Names this holding of the item: the item''s next holding has another.';
comment on column getwork.work.task_id is 'The task.';
comment on column getwork.work.item is 'The key of the thing to be worked on, e.g. a loan: the query''s "item" as text. Compared byte by byte, whatever collation the query''s column has.';
comment on column getwork.work.slot is 'Which of the item''s places.';
comment on column getwork.work.exclusive is 'The group of which one member is held at a time.';
comment on column getwork.work.details is 'What else the query said of it. json, not jsonb, which would forget the order of the columns.';
comment on column getwork.work.user_name is 'Who holds it, or held it.';
comment on column getwork.work.instance is 'For programs: which copy; with the user it names the holder.';
comment on column getwork.work.request_id is 'The request that it answered.';
comment on column getwork.work.run_id is 'The run that found it.';
comment on column getwork.work.rank is 'Its place in the run that found it.';
comment on column getwork.work.attempt is 'Which try at this item it is.';
comment on column getwork.work.assigned_at is 'When it was handed out.';
comment on column getwork.work.lease is 'How long an extension lasts; null: no lease.';
comment on column getwork.work.lease_expires_at is 'Until then it is held, by the database''s clock.';
comment on column getwork.work.warn_at is 'When its holder is told that the lease is about to run out; null: he was told, or there is no lease.';
comment on column getwork.work.state is 'held, and then one of: completed; returned, to be handed out again from available_at on; never, for this task; failed; expired, its lease ran out; reassigned, to another.';
comment on column getwork.work.closed_at is 'When it was let go of.';
comment on column getwork.work.closed_by is 'Who let go of it: the holder, or a manager; null: nobody, its lease ran out.';
comment on column getwork.work.closed_xid is 'The transaction that closed it: compared with a run''s snapshot, never by time.';
comment on column getwork.work.note is 'What they said of it.';
comment on column getwork.work.error is 'How the attempt failed.';
comment on column getwork.work.after is 'What a return asked for; kept so that repeating it can be recognised.';
comment on column getwork.work.available_at is 'Put off until then; of what was never, when it was redriven.';
comment on column getwork.work.to_others is 'Returned, but not to be offered to the same user again.';
comment on column getwork.work.exhausted is 'Never, because the last of its attempts failed or ran out, not because somebody said so.';
comment on column getwork.work.redriven_by is 'Who put it back after it was never; available_at says when.';
comment on index getwork.work_held_slot is 'An item is held by no more holders than it has places. The last word on who holds what.';
comment on index getwork.work_holder is 'A holder holds an item at most once; and a pipeline is read from here.';
comment on index getwork.work_held_exclusive is 'Of an exclusive group one member is held at a time.';
comment on index getwork.work_due is 'Whose lease runs out next, or whose holder is to be warned of it, is found here, however long the history is.';
comment on index getwork.work_put_off is 'What else than held work has a say in who may have an item now (put off, never to return, returned to others) stands here at times in the future, in one range; what is over lies before it.';
comment on index getwork.work_completed is 'Four eyes: who has completed an item is read from one user to the next, however often each has.';

-- The first condition on a time is the index's, work_put_off; the second leaves out work returned to others, who may have it.
create view getwork.blocked as
  select task_id, item, true as held, exclusive
  from getwork.work
  where state = 'held'
  union all
  select task_id, item, false, exclusive
  from getwork.work
  where state in ('never', 'returned', 'failed')
    and coalesce(case when not to_others then available_at end, 'infinity'::timestamptz) > statement_timestamp()
    and (available_at is null or available_at > statement_timestamp());
comment on view getwork.blocked is
  'What a ranking query''s result is freed of: items held, put off or never to return. The only thing in this schema that the query role may read. statement_timestamp(), because clock_timestamp() is volatile and would keep the index from being used; now() would be the time of the lock.';
comment on column getwork.blocked.task_id is 'The task.';
comment on column getwork.blocked.item is 'The key of the item.';
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
) with (fillfactor = 80, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.01, vacuum_index_cleanup = on);
create unique index item_key on getwork.item (task_id, item) where done_at is null;
create index item_ready on getwork.item (task_id, priority desc, id) where due_at is null and done_at is null;
create index item_due on getwork.item (task_id, due_at) where done_at is null and due_at < 'infinity';
create index item_done on getwork.item (done_at) where done_at is not null;
comment on table getwork.item is
  'The inbox: items that were pushed to a task without a query. work is the truth about who holds what; due_at only keeps what can''t be handed out from the index that a round reads, and changes in the transaction that changes the work.';
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
comment on index getwork.item_key is 'A key is there once until it is done; pushing it again is counted as a duplicate.';
comment on index getwork.item_ready is 'What a round reads: the highest priority first, then the oldest. Finished, held and put-off items are not in it.';

-- --------------------------------------------------------------------------------------------- people and programs

-- A row of principal, session or token that changes takes the id of the transaction that changed it (changed). Every node asks
-- each second for rows whose change it could not see a second ago, so that rights end everywhere, also without NOTIFY.

create table getwork.principal (
  id         bigint generated always as identity primary key,
  name       text not null unique,
  name_key   text not null unique,
  iss        text not null,
  sub        text not null,
  kind       text not null check (kind in ('person', 'service')),
  role       text check (role in ('worker', 'agent', 'observer', 'manager')),
  admin      boolean not null default false,
  groups     text[] not null default '{}',
  blocked_at timestamptz,
  seen_at    timestamptz,
  former     jsonb,
  told_at    timestamptz,
  unsettled  boolean not null default false,
  rebound    integer not null default 0,
  created_at timestamptz not null default clock_timestamp(),
  changed    xid8 not null default pg_current_xact_id(),
  unique (iss, sub)
);
create index principal_changed on getwork.principal (changed);
create index principal_unsettled on getwork.principal (told_at) where unsettled;
comment on table getwork.principal is 'Who can hold work under a name. Rows are never removed, so that nobody inherits a name, and with it another''s work.';
comment on column getwork.principal.id is 'Names the principal in other tables.';
comment on column getwork.principal.name is 'The user''s name, as work and requests have it. It stays, whatever the provider calls them later.';
comment on column getwork.principal.name_key is 'The name in one spelling of capitals and of characters that look alike: two names with one key would be mistaken for each other.';
comment on column getwork.principal.iss is 'Who vouches for them: the issuer''s URL; proxy; or getwork, for services and for tokens made by hand.';
comment on column getwork.principal.sub is 'What the issuer calls them, for ever.';
comment on column getwork.principal.kind is 'person, or service: a program with a name of its own.';
comment on column getwork.principal.role is 'The role of the last log-in, or of a service. Null: none, such as an admin whom no other grant matched.';
comment on column getwork.principal.admin is 'May manage people, sessions, tokens, and read the audit.';
comment on column getwork.principal.groups is 'The groups of the last log-in.';
comment on column getwork.principal.blocked_at is 'Set: they can''t come in, by any credential.';
comment on column getwork.principal.seen_at is 'When they last logged in, or, to the hour, when a proxy last named them.';
comment on column getwork.principal.former is 'Role, admin and groups before a proxy last said something else: if it says them again, two proxies contradict each other.';
comment on column getwork.principal.told_at is 'When a proxy last said something else of them.';
comment on column getwork.principal.unsettled is 'Proxies contradict each other about them. Live channels follow when that has been over for ten seconds.';
comment on column getwork.principal.rebound is 'How often their name was given to another account. It is part of credentials by JWT and proxy, so that those of the former account have ended.';
comment on column getwork.principal.created_at is 'When they first came in.';
comment on column getwork.principal.changed is 'The transaction that last changed what they may do.';
comment on index getwork.principal_unsettled is 'Whom two proxies have contradicted each other about; few, and only while a proxy is set up wrongly.';

-- The ids of sessions and tokens are looked up for each click of people who log in, and so are compared byte by byte.
create table getwork.session (
  id               bytea primary key check (octet_length(id) = 32),
  public_id        text collate "C" not null unique,
  principal        bigint not null references getwork.principal,
  sid              text,
  role             text check (role in ('worker', 'agent', 'observer', 'manager')),
  admin            boolean not null default false,
  groups           text[] not null default '{}',
  wall             boolean not null default false,
  opens_until      timestamptz,
  auth_time        timestamptz,
  created_at       timestamptz not null default clock_timestamp(),
  active_at        timestamptz not null default clock_timestamp(),
  idle_at          timestamptz,
  ends_at          timestamptz not null,
  refresh          bytea,
  refreshed_at     timestamptz,
  refreshing_until timestamptz,
  hint             bytea,
  address          inet,
  agent            text check (length(agent) <= 200),
  ended_at         timestamptz,
  ended_by         text,
  end_audited      boolean not null default false,
  changed          xid8 not null default pg_current_xact_id(),
  check ((ended_at is null) = (ended_by is null))
);
create index session_principal on getwork.session (principal) where ended_at is null;
create index session_sid on getwork.session (sid) where ended_at is null and sid is not null;
create index session_changed on getwork.session (changed);
create index session_ended on getwork.session (ended_at) where ended_at is not null;
-- Not of idle_at, which moves with everything that somebody does: an index of it would be written each time.
create index session_unaudited on getwork.session (ends_at) where ended_at is null and not end_audited;
comment on table getwork.session is 'A browser''s log-in. Ended ones are kept for 30 days.';
comment on column getwork.session.id is 'SHA-256 of the cookie: what is read here opens nothing.';
comment on column getwork.session.public_id is 'What the session is called in lists and logs.';
comment on column getwork.session.principal is 'Whose it is.';
comment on column getwork.session.sid is 'What the identity provider calls its own session.';
comment on column getwork.session.role is 'The role at log-in, or at the last refresh. Null: the admin bit alone.';
comment on column getwork.session.admin is 'May manage people.';
comment on column getwork.session.groups is 'The groups at log-in, or at the last refresh.';
comment on column getwork.session.wall is 'Of a screen on a wall, which shows counts and nothing else. An administrator made a link for it, and whoever opened that was asked nothing.';
comment on column getwork.session.opens_until is 'The link was not opened yet, and can be until then. id is that of the link''s code, which is no cookie. Null: it was, or there was none.';
comment on column getwork.session.auth_time is 'When the provider last saw them prove who they are.';
comment on column getwork.session.created_at is 'When they logged in.';
comment on column getwork.session.active_at is 'When they last did something.';
comment on column getwork.session.idle_at is 'When it ends unless they do something first. Null: for observers, who only look.';
comment on column getwork.session.ends_at is 'When it ends in any case.';
comment on column getwork.session.refresh is 'The provider''s refresh token, sealed under a key that is not in the database.';
comment on column getwork.session.refreshed_at is 'When the provider last confirmed it.';
comment on column getwork.session.refreshing_until is 'A node asks the provider now, and may until then.';
comment on column getwork.session.hint is 'What the provider is shown at log-out, sealed like the refresh token.';
comment on column getwork.session.address is 'Where they logged in from.';
comment on column getwork.session.agent is 'The browser, as it calls itself.';
comment on column getwork.session.ended_at is 'When it ended.';
comment on column getwork.session.ended_by is 'What ended it: log-out, the provider, an admin, a newer log-in.';
comment on column getwork.session.end_audited is 'That it ended by time has its row in the audit.';
comment on column getwork.session.changed is 'The transaction that last changed what it allows.';

create table getwork.token (
  id          text collate "C" primary key,
  hash        bytea not null check (octet_length(hash) = 32),
  kind        text not null check (kind in ('personal', 'service', 'cli')),
  principal   bigint not null references getwork.principal,
  parent      bytea references getwork.session,
  label       text not null,
  role        text not null check (role in ('worker', 'agent', 'observer', 'manager')),
  admin       boolean not null default false,
  scopes      text[] not null,
  tasks       text[],
  made_by     bigint not null references getwork.principal,
  created_at  timestamptz not null default clock_timestamp(),
  expires_at  timestamptz not null,
  used_at     timestamptz,
  used_from   inet,
  ended_at    timestamptz,
  ended_by    text,
  end_audited boolean not null default false,
  changed     xid8 not null default pg_current_xact_id(),
  check ((ended_at is null) = (ended_by is null)),
  check ((kind = 'cli') = (parent is not null))
);
create index token_principal on getwork.token (principal) where ended_at is null;
create index token_parent on getwork.token (parent) where parent is not null;
create index token_changed on getwork.token (changed);
create index token_ended on getwork.token (ended_at) where ended_at is not null;
create index token_unaudited on getwork.token (expires_at) where ended_at is null and not end_audited;
comment on table getwork.token is 'What a program shows instead of a log-in. Ended ones are kept for 30 days.';
comment on column getwork.token.id is 'What the token is called in lists and logs; a part of it.';
comment on column getwork.token.hash is 'SHA-256 of the whole token: what is read here opens nothing.';
comment on column getwork.token.kind is 'personal: of a person, with at most their rights; service: of a program with a name of its own; cli: a session''s, for a terminal.';
comment on column getwork.token.principal is 'Whose it is.';
comment on column getwork.token.parent is 'The session that a cli token ends with.';
comment on column getwork.token.label is 'What its owner calls it.';
comment on column getwork.token.role is 'The role that was asked for; it never allows more than its owner''s.';
comment on column getwork.token.admin is 'May manage people; only of tokens made on the database itself.';
comment on column getwork.token.scopes is 'What it may be used for: read, work, push, manage.';
comment on column getwork.token.tasks is 'The only tasks it may be used for. Null: all.';
comment on column getwork.token.made_by is 'Who made it.';
comment on column getwork.token.created_at is 'When.';
comment on column getwork.token.expires_at is 'When it ends by itself.';
comment on column getwork.token.used_at is 'When it was last used, to the minute.';
comment on column getwork.token.used_from is 'From where.';
comment on column getwork.token.ended_at is 'When it was ended.';
comment on column getwork.token.ended_by is 'Who or what ended it.';
comment on column getwork.token.end_audited is 'That it expired has its row in the audit, or it is a terminal''s, whose session has one.';
comment on column getwork.token.changed is 'The transaction that last changed what it allows.';

-- Asked as clicks are recorded, and under the assign lock: of all their credentials in one query, because one for each took a fifth of
-- the server's time.
--
-- In SQL, so that it becomes a part of the statement that asks, and is planned with it, once in a session. The sub-select hides how
-- many there are: a plan for one would look so much cheaper that PostgreSQL made one for each statement. A credential is looked for in
-- the table of its kind alone: a null finds nothing in an index, and costs next to nothing. Stable: it sees what the calling statement
-- sees.
create function getwork.ended_among(credentials text[]) returns setof text language sql stable as $$
  select c.credential
  from (
    select u.credential, pg_catalog.left(u.credential, 2) as kind, pg_catalog.substr(u.credential, 3) as id
    from pg_catalog.unnest((select credentials)) as u (credential)
    where u.credential is not null
    offset 0) c
  left join getwork.token t on t.id = case c.kind when 't:' then c.id end
  left join getwork.session own on own.public_id = case c.kind when 's:' then c.id end
  left join getwork.session parent on parent.id = t.parent
  left join getwork.principal p
    on p.id = coalesce(t.principal, own.principal, case when c.kind in ('j:', 'p:') then pg_catalog.split_part(c.id, '.', 1)::bigint end)
  where (p.blocked_at is null and case c.kind
      when 's:' then own.ended_at is null and own.ends_at > pg_catalog.clock_timestamp() and own.role in ('worker', 'agent', 'manager')
      when 't:' then t.ended_at is null and t.expires_at > pg_catalog.clock_timestamp()
        and (t.parent is null or parent.ended_at is null and parent.ends_at > pg_catalog.clock_timestamp())
        and coalesce(parent.role, p.role) in ('worker', 'agent', 'manager')
      when 'j:' then p.rebound = coalesce(nullif(pg_catalog.split_part(c.id, '.', 2), ''), '0')::integer
      when 'p:' then p.rebound = coalesce(nullif(pg_catalog.split_part(c.id, '.', 2), ''), '0')::integer and p.role in ('worker', 'agent', 'manager')
    end) is not true
$$;
comment on function getwork.ended_among(text[]) is
  'Those of the credentials, written as in work_requested, that have ended, or whose owner is blocked or has no role that takes work. Unknown ones have; nulls are passed over. How long a personal token works without its owner is a setting of the nodes, and not asked here.';

create table getwork.once (
  what  text primary key,
  until timestamptz not null
);
create index once_until on getwork.once (until);
comment on table getwork.once is 'What may be used once: a log-in''s state, a code, a log-out message. Inserted, or refused.';
comment on column getwork.once.what is 'Its SHA-256.';
comment on column getwork.once.until is 'It is of no use after that, and removed.';

-- --------------------------------------------------------------------------------------------------------- audit

create table getwork.audit (
  n          bigint primary key,
  at         timestamptz not null,
  node       text not null,
  actor      text,
  by         text,
  credential text,
  address    inet,
  act        text not null,
  object     text,
  outcome    text not null,
  detail     jsonb not null,
  prev       bytea not null check (octet_length(prev) = 32),
  hash       bytea not null check (octet_length(hash) = 32)
);
create index audit_act on getwork.audit (act, n);
create index audit_actor on getwork.audit (actor, n);
comment on table getwork.audit is 'Who did what to people, tasks and other people''s work. Each row is written in the transaction of its act, and chained to the row before it by its hash.';
comment on column getwork.audit.n is 'Counts from 1 without gaps.';
comment on column getwork.audit.at is 'When.';
comment on column getwork.audit.node is 'The node that wrote it; direct, for a program that wrote to the database itself.';
comment on column getwork.audit.actor is 'Who did it. Null: nobody who is known, such as a log-in that was refused.';
comment on column getwork.audit.by is 'How they had come in: session, token, jwt, proxy, dev or direct.';
comment on column getwork.audit.credential is 'With what, as work_requested has it.';
comment on column getwork.audit.address is 'From where.';
comment on column getwork.audit.act is 'What: task.update, work.release, token.create and so on';
comment on column getwork.audit.object is 'To what: a task''s name, a user''s, a token''s id.';
comment on column getwork.audit.outcome is 'done, or refused.';
comment on column getwork.audit.detail is 'What else is to be known of it; never a secret.';
comment on column getwork.audit.prev is 'The hash of the row before it; zeros for the first.';
comment on column getwork.audit.hash is 'SHA-256 over the other fields.';

create function getwork.keep_audit() returns trigger language plpgsql as $$
begin
  if pg_catalog.current_setting('getwork_audit.cut', true) = 'yes' and tg_op = 'DELETE' then
    return old; -- getwork audit export --cut, which adds a row that says so
  end if;
  raise exception 'rows of audit are never changed or removed' using hint = 'getwork audit export --cut removes old rows, and says so in the chain';
end $$;
create trigger audit_kept before update or delete on getwork.audit for each row execute function getwork.keep_audit();
create trigger audit_not_emptied before truncate on getwork.audit for each statement execute function getwork.keep_audit();
comment on function getwork.keep_audit() is 'Against accidents. The owner of the table can drop it: what shows tampering is the chain, beside the log of the nodes.';

create table getwork.audit_head (
  one  boolean primary key default true check (one),
  n    bigint not null,
  hash bytea not null check (octet_length(hash) = 32)
);
insert into getwork.audit_head (n, hash) values (0, decode(repeat('00', 32), 'hex'));
comment on table getwork.audit_head is 'The end of the chain: one row, locked last by each transaction that adds to it.';
comment on column getwork.audit_head.one is 'There is one row.';
comment on column getwork.audit_head.n is 'The number of the last row of audit.';
comment on column getwork.audit_head.hash is 'Its hash.';

-- ----------------------------------------------------------------------------------------------------- web hooks

create table getwork.hook (
  id            bigint generated always as identity primary key,
  task_id       bigint,
  url           text not null,
  events        text[] not null,
  secret        bytea not null,
  former_secret bytea,
  former_until  timestamptz,
  failures      integer not null default 0,
  retry_at      timestamptz,
  created_at    timestamptz not null default clock_timestamp(),
  created_by    text not null,
  check ((former_secret is null) = (former_until is null)),
  check ((retry_at is null) = (failures = 0))
);
comment on table getwork.hook is 'URLs that are told of events, by Standard Webhooks.';
comment on column getwork.hook.id is 'Names it.';
comment on column getwork.hook.task_id is 'Whose events; null: those of all tasks.';
comment on column getwork.hook.url is 'Where they are posted.';
comment on column getwork.hook.events is 'Which: work.assigned, work.closed, work.expired, run.failed.';
comment on column getwork.hook.secret is 'Signs what is sent. In the clear, because a sender needs it.';
comment on column getwork.hook.former_secret is 'The secret before the last rotation, which signs beside it.';
comment on column getwork.hook.former_until is 'Until then.';
comment on column getwork.hook.failures is 'Attempts in a row that failed, whatever the event.';
comment on column getwork.hook.retry_at is 'After a failure nothing is sent until then, and then one event at a time until one is delivered.';
comment on column getwork.hook.created_at is 'When it was made.';
comment on column getwork.hook.created_by is 'Who made it.';

create table getwork.hook_event (
  id         bigint generated always as identity primary key,
  message    uuid not null default gen_random_uuid(),
  hook_id    bigint not null,
  task_id    bigint not null,
  item       text collate "C" not null default '',
  type       text not null,
  body       json not null,
  state      text not null default 'waiting' check (state in ('waiting', 'delivered', 'dead')),
  attempts   integer not null default 0,
  created_at timestamptz not null default clock_timestamp(),
  since      timestamptz not null default clock_timestamp(),
  next_at    timestamptz not null default clock_timestamp(),
  ended_at   timestamptz,
  status     integer,
  error      text,
  check ((state = 'waiting') = (ended_at is null))
) with (fillfactor = 70, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.01, vacuum_index_cleanup = on);
create index hook_event_due on getwork.hook_event (hook_id, next_at) where state = 'waiting';
create index hook_event_line on getwork.hook_event ((hook_id::text || ' ' || task_id::text || ' ' || item), id) where ended_at is null;
create index hook_event_since on getwork.hook_event (since) where state = 'waiting';
create index hook_event_over on getwork.hook_event (state, ended_at) where state <> 'waiting';
create index hook_event_hook on getwork.hook_event (hook_id, id);
create index hook_event_state on getwork.hook_event (hook_id, state, id);
comment on table getwork.hook_event is 'What is to be posted, or was: a row for each event and hook, written in the transaction of the event. Of one item the oldest that waits is sent first.';
comment on column getwork.hook_event.id is 'The order of the events of an item.';
comment on column getwork.hook_event.message is 'What the receiver knows it by (webhook-id): the same at each attempt, and in no other life of the database.';
comment on column getwork.hook_event.hook_id is 'To which hook.';
comment on column getwork.hook_event.task_id is 'Of which task; 0: a test.';
comment on column getwork.hook_event.item is 'Of which item; empty: of none.';
comment on column getwork.hook_event.type is 'What happened.';
comment on column getwork.hook_event.body is 'What is posted, byte by byte, because it is signed.';
comment on column getwork.hook_event.state is 'waiting; delivered; dead: not delivered within three days.';
comment on column getwork.hook_event.attempts is 'How often a node has begun to send it. A result counts only if this is still the same.';
comment on column getwork.hook_event.created_at is 'When it happened.';
comment on column getwork.hook_event.since is 'When it was first to be sent; a redrive begins anew.';
comment on column getwork.hook_event.next_at is 'When it is due. While a node sends it, the end of that node''s lease.';
comment on column getwork.hook_event.ended_at is 'When it was delivered, or given up.';
comment on column getwork.hook_event.status is 'The HTTP status of the last answer. Its body is not kept.';
comment on column getwork.hook_event.error is 'How the last attempt failed.';
comment on index getwork.hook_event_line is 'Whether an older event of the item waits. No other index has these conditions, so a wrong estimate of what waits leads to no other.';

create function getwork.json_time(at timestamptz) returns text language sql stable as $$
  select pg_catalog.to_char(at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
$$;
comment on function getwork.json_time(timestamptz) is 'A time as the API writes it.';

-- pg_temp is named last in search_path: left out, it comes first, and a login's temporary types would run code with the owner's rights.
create function getwork.tell_hooks() returns trigger language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
  kind text;
  at   timestamptz := clock_timestamp();
begin
  if tg_table_name = 'run' then
    insert into getwork.hook_event (hook_id, task_id, type, body)
    select h.id, new.task_id, 'run.failed', json_build_object('type', 'run.failed', 'timestamp', getwork.json_time(at), 'data',
      json_build_object('task', s.name, 'run', new.id::text, 'started_at', getwork.json_time(new.started_at)))
    from getwork.hook h join getwork.task_state s on s.task_id = new.task_id
    where coalesce(h.task_id, new.task_id) = new.task_id and 'run.failed' = any (h.events);
    return null;
  end if;
  kind := case when new.state = 'held' then 'work.assigned' when new.closed_by is null then 'work.expired' else 'work.closed' end;
  insert into getwork.hook_event (hook_id, task_id, item, type, body)
  select h.id, new.task_id, new.item, kind, json_build_object('type', kind, 'timestamp', getwork.json_time(at), 'data',
    json_strip_nulls(json_build_object('task', s.name, 'item', new.item, 'work', new.id::text, 'user', new.user_name,
      'instance', nullif(new.instance, ''), 'attempt', new.attempt, 'state', new.state, 'assigned_at', getwork.json_time(new.assigned_at),
      'lease_expires_at', case when new.state = 'held' then getwork.json_time(new.lease_expires_at) end,
      'closed_at', getwork.json_time(new.closed_at), 'closed_by', new.closed_by, 'available_at', getwork.json_time(new.available_at))))
  from getwork.hook h join getwork.task_state s on s.task_id = new.task_id
  where coalesce(h.task_id, new.task_id) = new.task_id and kind = any (h.events);
  return null;
end $$;
comment on function getwork.tell_hooks() is
  'Records an event for each hook that is to be told of it, in the transaction of the event. Security definer, so that no login needs rights for it. Never details, notes or errors.';

create trigger work_assigned after insert on getwork.work for each row execute function getwork.tell_hooks();
create trigger work_closed after update of state on getwork.work for each row
  when (old.state = 'held' and new.state <> 'held') execute function getwork.tell_hooks();
alter table getwork.work disable trigger work_assigned;
alter table getwork.work disable trigger work_closed;
create trigger run_failed after update of state on getwork.run for each row
  when (old.state = 'running' and new.state in ('failed', 'lost')) execute function getwork.tell_hooks();

-- Whoever makes or deletes a hook calls this in the same transaction, after lock table getwork.hook.
create function getwork.switch_hooks() returns void language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
  if exists (select from getwork.hook) = (select t.tgenabled <> 'D' from pg_trigger t where t.tgrelid = 'getwork.work'::regclass and t.tgname = 'work_assigned') then
    return;
  end if;
  if exists (select from getwork.hook) then
    alter table getwork.work enable trigger work_assigned;
    alter table getwork.work enable trigger work_closed;
  else
    alter table getwork.work disable trigger work_assigned;
    alter table getwork.work disable trigger work_closed;
  end if;
end $$;
comment on function getwork.switch_hooks() is
  'Switches the triggers of work on with the first hook, and off with the last: without hooks a click does nothing for them. Security definer, because only the table''s owner may.';
revoke execute on function getwork.switch_hooks(), getwork.tell_hooks() from public;

---- create above / drop below ----

drop table getwork.hook_event;
drop table getwork.hook;
drop trigger run_failed on getwork.run;
drop trigger work_closed on getwork.work;
drop trigger work_assigned on getwork.work;
drop function getwork.switch_hooks();
drop function getwork.tell_hooks();
drop function getwork.json_time(timestamptz);
drop table getwork.audit_head;
drop table getwork.audit;
drop function getwork.keep_audit();
drop table getwork.once;
drop function getwork.ended_among(text[]);
drop table getwork.token;
drop table getwork.session;
drop table getwork.principal;
drop table getwork.item;
drop view getwork.blocked;
drop table getwork.work;
drop table getwork.work_requested;
drop sequence getwork.round;
drop function getwork.shelved(bigint, text);
drop function getwork.candidate_bucket(text);
drop table getwork.candidate_place;
drop table getwork.candidate;
alter table getwork.task_state drop constraint task_state_shelf_run_fkey;
drop table getwork.run;
drop function getwork.cluster();
drop table getwork.task_state;
drop table getwork.task_conflict;
drop table getwork.task_pause;
drop table getwork.task_version;
drop table getwork.task;
