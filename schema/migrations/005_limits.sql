-- How much one user may hold over all tasks. Older nodes work beside it: they keep to no limit, what they hand out takes no seat but
-- counts, and a program that asked one of them is taken for a person. So a limit is in force once they are gone.

create table getwork.limits (
  version    integer primary key check (version >= 1),
  created_at timestamptz not null default clock_timestamp(),
  created_by text not null,
  everybody  integer check (everybody >= 0),
  groups     jsonb check (jsonb_typeof(groups) = 'object' and groups <> '{}'),
  people     jsonb check (jsonb_typeof(people) = 'object' and people <> '{}')
);
comment on table getwork.limits is 'How much one user may hold over all tasks. Insert-only: every change is a new version, and the last one is in force.';
comment on column getwork.limits.version is 'Counts from 1; an ETag of the API.';
comment on column getwork.limits.created_at is 'When the change was made.';
comment on column getwork.limits.created_by is 'Who made it.';
comment on column getwork.limits.everybody is 'The limit of people whom neither of the others names. Null: none.';
comment on column getwork.limits.groups is 'The limits of members of groups, of which the greatest counts. Null, as a member: none.';
comment on column getwork.limits.people is 'The limits of users by name, programs, too, which come first. Null, as a member: none.';

alter table getwork.work add column seat integer check (seat >= 1);
comment on column getwork.work.seat is 'Which of its user''s seats it takes: as many as the limit was. Null: no limit bound them when it was handed out.';

alter table getwork.work_requested add column program boolean;
comment on column getwork.work_requested.program is 'A program asked (role agent), which a limit of its own name alone binds. Null: a person.';

---- create above / drop below ----

alter table getwork.work_requested drop column program;
alter table getwork.work drop column seat;
drop table getwork.limits;
