-- What is looked up for each click of people who log in: the public ids of sessions and tokens are compared byte by byte, as items
-- are, instead of by the rules of the database's language, and a credential is looked for in the table of its kind alone. It rebuilds
-- two small indexes and takes no time. Older nodes go on beside it, and gain as much.

alter table getwork.session alter column public_id type text collate "C";
alter table getwork.token alter column id type text collate "C";

-- A null finds nothing in an index, and costs next to nothing.
create or replace function getwork.ended_among(credentials text[]) returns setof text language sql stable as $$
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

---- create above / drop below ----

create or replace function getwork.ended_among(credentials text[]) returns setof text language sql stable as $$
  select c.credential
  from (
    select u.credential, pg_catalog.left(u.credential, 2) as kind, pg_catalog.substr(u.credential, 3) as id
    from pg_catalog.unnest((select credentials)) as u (credential)
    where u.credential is not null
    offset 0) c
  left join getwork.token t on c.kind = 't:' and t.id = c.id
  left join getwork.session own on c.kind = 's:' and own.public_id = c.id
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

alter table getwork.token alter column id type text collate "default";
alter table getwork.session alter column public_id type text collate "default";
