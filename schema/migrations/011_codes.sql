-- Why work was let go of, what it came to, and until when its holder has put it aside. Older nodes work beside it: they ask for no code, keep
-- none, and show none, so a task that requires one has it of all work once they are gone; and an extension there shortens the lease of
-- work that is put aside.

alter table getwork.task_version add column outcomes json, add column require_code boolean, add column result json;
comment on column getwork.task_version.outcomes is 'The reasons for which work is let go of. Null: none.';
comment on column getwork.task_version.require_code is 'One of them must be named. Null: no.';
comment on column getwork.task_version.result is 'The fields of what work comes to. Null: none.';

alter table getwork.work add column code text, add column result json, add column later_until timestamptz;
alter table getwork.work add constraint work_code check (octet_length(code) <= 63) not valid,
  add constraint work_result check (octet_length(result::text) <= 16384) not valid;
comment on column getwork.work.code is 'Why it was let go of: the code of an outcome of its task; one that begins with _ is the server''s own. Null: nobody said.';
comment on column getwork.work.result is 'What it came to, in one form: the names of its fields in order.';
comment on column getwork.work.later_until is 'Its holder has put it aside until then.';

create or replace function getwork.tell_hooks() returns trigger language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
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
  kind := case
    when new.state = 'held' then 'work.assigned'
    when new.closed_by is null then 'work.expired'
    else 'work.closed'
  end;
  insert into getwork.hook_event (hook_id, task_id, item, type, body)
  select h.id, new.task_id, new.item, kind, json_build_object('type', kind, 'timestamp', getwork.json_time(at), 'data',
    json_strip_nulls(json_build_object('task', s.name, 'item', new.item, 'work', new.id::text, 'user', new.user_name,
      'instance', nullif(new.instance, ''), 'attempt', new.attempt, 'state', new.state, 'assigned_at', getwork.json_time(new.assigned_at),
      'deadline', getwork.json_time(new.deadline),
      'lease_expires_at', case when new.state = 'held' then getwork.json_time(new.lease_expires_at) end,
      'closed_at', getwork.json_time(new.closed_at), 'closed_by', new.closed_by, 'code', new.code, 'available_at', getwork.json_time(new.available_at))))
  from getwork.hook h join getwork.task_state s on s.task_id = new.task_id
  where coalesce(h.task_id, new.task_id) = new.task_id and kind = any (h.events);
  return null;
end $$;

---- create above / drop below ----

create or replace function getwork.tell_hooks() returns trigger language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
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
  kind := case
    when new.state = 'held' then 'work.assigned'
    when new.closed_by is null then 'work.expired'
    else 'work.closed'
  end;
  insert into getwork.hook_event (hook_id, task_id, item, type, body)
  select h.id, new.task_id, new.item, kind, json_build_object('type', kind, 'timestamp', getwork.json_time(at), 'data',
    json_strip_nulls(json_build_object('task', s.name, 'item', new.item, 'work', new.id::text, 'user', new.user_name,
      'instance', nullif(new.instance, ''), 'attempt', new.attempt, 'state', new.state, 'assigned_at', getwork.json_time(new.assigned_at),
      'deadline', getwork.json_time(new.deadline),
      'lease_expires_at', case when new.state = 'held' then getwork.json_time(new.lease_expires_at) end,
      'closed_at', getwork.json_time(new.closed_at), 'closed_by', new.closed_by, 'available_at', getwork.json_time(new.available_at))))
  from getwork.hook h join getwork.task_state s on s.task_id = new.task_id
  where coalesce(h.task_id, new.task_id) = new.task_id and kind = any (h.events);
  return null;
end $$;

alter table getwork.work drop constraint work_result, drop constraint work_code;
alter table getwork.work drop column later_until, drop column result, drop column code;
alter table getwork.task_version drop column result, drop column require_code, drop column outcomes;
