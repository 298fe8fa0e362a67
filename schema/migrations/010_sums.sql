-- What happened to each task in each hour, which outlives the rows that it was counted from. Older nodes work beside it: they don't read
-- it, and newer ones count what they do.

create table getwork.task_hour (
  hour        timestamptz not null,
  task_id     bigint not null,
  requests    integer not null default 0,
  given       integer not null default 0,
  empty       integer not null default 0,
  failed      integer not null default 0,
  cancelled   integer not null default 0,
  wait_p50    float8,
  wait_p90    float8,
  wait_max    float8,
  runs        integer not null default 0,
  runs_failed integer not null default 0,
  run_p50     float8,
  run_max     float8,
  assigned    integer not null default 0,
  completed   integer not null default 0,
  returned    integer not null default 0,
  never       integer not null default 0,
  failed_work integer not null default 0,
  expired     integer not null default 0,
  reassigned  integer not null default 0,
  held        integer not null default 0,
  primary key (hour, task_id)
);
comment on table getwork.task_hour is 'What happened to each task in each hour: a row if anything did. Counted again for a day, and a number is only raised, so nodes may count at once, and what was removed meanwhile takes nothing away.';
comment on column getwork.task_hour.hour is 'When it began, a full hour of UTC.';
comment on column getwork.task_hour.task_id is 'The task; 0: all hours until this one have been counted.';
comment on column getwork.task_hour.requests is 'Requests made in it, and what became of them: given, empty, failed, cancelled.';
comment on column getwork.task_hour.given is 'Those that got something.';
comment on column getwork.task_hour.empty is 'Those that got nothing.';
comment on column getwork.task_hour.failed is 'Those whose query failed.';
comment on column getwork.task_hour.cancelled is 'Those that were cancelled.';
comment on column getwork.task_hour.wait_p50 is 'The median of their waits, in milliseconds. Null: none ended without lingering.';
comment on column getwork.task_hour.wait_p90 is 'Nine of ten waited no longer.';
comment on column getwork.task_hour.wait_max is 'The longest wait.';
comment on column getwork.task_hour.runs is 'Runs that began in it.';
comment on column getwork.task_hour.runs_failed is 'Those that failed, or were lost with their node.';
comment on column getwork.task_hour.run_p50 is 'The median of how long they took, in milliseconds. Null: none finished.';
comment on column getwork.task_hour.run_max is 'The longest.';
comment on column getwork.task_hour.assigned is 'Work handed out in it.';
comment on column getwork.task_hour.completed is 'Work closed in it, by what became of it, like the next five.';
comment on column getwork.task_hour.returned is 'Returned.';
comment on column getwork.task_hour.never is 'Never to return.';
comment on column getwork.task_hour.failed_work is 'Attempts that failed.';
comment on column getwork.task_hour.expired is 'Leases that ran out.';
comment on column getwork.task_hour.reassigned is 'Given to others.';
comment on column getwork.task_hour.held is 'Work held at its end.';

---- create above / drop below ----

drop table getwork.task_hour;
