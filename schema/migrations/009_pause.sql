-- Pausing is no change of a task's settings: it makes no version. This is where it is kept.
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

---- create above / drop below ----

drop table getwork.task_pause;
