-- Snapshots and transaction ids have a meaning only within one life of one cluster. A run records the life that it was made in.

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

-- Only new runs have a value: existing runs have none, so each task with a shelf makes one new run after this migration.
alter table getwork.run add column cluster text;
alter table getwork.run alter column cluster set default getwork.cluster();
comment on column getwork.run.cluster is 'The life of the cluster that it was made in. In another one, after a restore, a switch-over or a fail-over, its snapshot says nothing, and what it left is not fresh. Null: it is older than this column.';

---- create above / drop below ----

alter table getwork.run drop column cluster;
drop function getwork.cluster();
