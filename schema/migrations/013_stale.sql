-- An expired shelf may go on serving while its refresh runs. It takes no time, whatever the size.

-- The table that everybody uses comes first: a try that waits for it in vain loses nothing else.
alter table getwork.work_requested
  add column ranked_at timestamptz,
  add column stale     boolean not null default false;
comment on column getwork.work_requested.ranked_at is 'The age of the ranking that its items came from: the query saw everything that was committed before. Null: it got nothing, its items were pushed, or it ended before this was recorded.';
comment on column getwork.work_requested.stale is 'Its items came from a shelf that had expired, while its refresh ran.';

alter table getwork.task_version
  add column stale_for interval not null default '0' check (stale_for >= interval '0');
comment on column getwork.task_version.stale_for is 'How long a shelf that has expired may go on serving while its refresh runs. 0: not at all.';

alter table getwork.task_state
  add column expires_at timestamptz;
comment on column getwork.task_state.expires_at is 'When the shelf expires by itself. It may serve a little longer (stale_for) only if fresh_until is still the same: otherwise it has ended early, and a request may wait that none may overtake. Null: it may not, because its refresh has failed.';

---- create above / drop below ----

alter table getwork.task_state drop column expires_at;
alter table getwork.task_version drop column stale_for;
alter table getwork.work_requested drop column stale, drop column ranked_at;
