-- Events of web hooks about work tell its deadline. Older nodes work beside it, and send what it records.

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
