-- Web hooks: URLs that are told of a task's events. Older nodes work beside it, and what they write is recorded, too.

-- pg_temp is named last in search_path: left out, it comes first, and a login's temporary types would run code with the owner's rights.
-- The table that everybody uses comes first: a try that waits for it in vain loses nothing else.
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
  when (old.state = 'running' and new.state = 'failed') execute function getwork.tell_hooks();

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
) with (fillfactor = 70);
create index hook_event_due on getwork.hook_event (hook_id, next_at) where state = 'waiting';
create index hook_event_line on getwork.hook_event (hook_id, task_id, item, id) where state = 'waiting';
create index hook_event_since on getwork.hook_event (since) where state = 'waiting';
create index hook_event_over on getwork.hook_event (state, ended_at) where state <> 'waiting';
create index hook_event_hook on getwork.hook_event (hook_id, id);
create index hook_event_state on getwork.hook_event (hook_id, state, id);
comment on table getwork.hook_event is 'What is to be posted, or was: a row for each event and hook, written in the transaction of the event. Of one item the oldest that waits is sent first.';
comment on index getwork.hook_event_line is 'Whether an older event of the item waits.';
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

create function getwork.json_time(at timestamptz) returns text language sql stable as $$
  select pg_catalog.to_char(at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
$$;
comment on function getwork.json_time(timestamptz) is 'A time as the API writes it.';

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
comment on function getwork.switch_hooks() is 'Switches the triggers of work on with the first hook, and off with the last: without hooks a click does nothing for them. Security definer, because only the table''s owner may.';
revoke execute on function getwork.switch_hooks(), getwork.tell_hooks() from public;

---- create above / drop below ----

drop trigger run_failed on getwork.run;
drop trigger work_closed on getwork.work;
drop trigger work_assigned on getwork.work;
drop function getwork.switch_hooks();
drop function getwork.tell_hooks();
drop function getwork.json_time(timestamptz);
drop table getwork.hook_event;
drop table getwork.hook;
