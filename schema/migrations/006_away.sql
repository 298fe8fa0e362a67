-- Absences, and what a task does with the work of whoever is away. Older nodes work beside it: they give work to people who are away
-- until the last of them is gone, and newer nodes take it away again where the task says so.

alter table getwork.task_version add column on_away text check (on_away in ('keep', 'release', 'to'));
comment on column getwork.task_version.on_away is 'What becomes of work whose holder is away: it stays theirs, goes back, or goes to their substitute. Null: it stays theirs.';

alter table getwork.work_requested drop constraint work_requested_reason_check;
alter table getwork.work_requested add constraint work_requested_reason_check
  check (reason in ('no_match', 'all_held', 'rules', 'at_limit', 'paused', 'away')) not valid;

create table getwork.absence (
  id         bigint generated always as identity primary key,
  user_name  text not null,
  from_at    timestamptz not null,
  until_at   timestamptz,
  substitute text,
  source     text not null default '',
  created_by text not null,
  ended_at   timestamptz,
  ended_by   text,
  check (until_at > from_at),
  check (substitute <> user_name)
);
comment on table getwork.absence is 'When people are away, and get no work. It is in force from from_at until until_at, unless it has ended before; several may overlap.';
comment on column getwork.absence.id is 'In the order in which they were entered: of several in force, the last decides who the substitute is.';
comment on column getwork.absence.user_name is 'Who is away, with all instances of that name.';
comment on column getwork.absence.from_at is 'When it begins.';
comment on column getwork.absence.until_at is 'Null: until somebody ends it.';
comment on column getwork.absence.substitute is 'Who gets their work under tasks whose on_away is to. Null: nobody.';
comment on column getwork.absence.source is 'The list that it was imported with. Empty: it was entered by hand.';
comment on column getwork.absence.created_by is 'Who entered it. Work that is taken away for it was closed by that user.';
comment on column getwork.absence.ended_at is 'When it ended: by hand, by an import without it, or because its time is over.';
comment on column getwork.absence.ended_by is 'Who ended it. Null: nobody, its time was over.';

-- Those in force come first here, since those that are over have ended_at.
create index absence_from on getwork.absence (from_at) where ended_at is null;
create index absence_user on getwork.absence (user_name, id);

---- create above / drop below ----

alter table getwork.work_requested drop constraint work_requested_reason_check;
update getwork.work_requested set reason = 'rules' where reason = 'away';
alter table getwork.work_requested add constraint work_requested_reason_check
  check (reason in ('no_match', 'all_held', 'rules', 'at_limit', 'paused'));
alter table getwork.task_version drop column on_away;
drop table getwork.absence;
