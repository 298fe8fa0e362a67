-- Refreshes are timed by runs that ran beside clicks. It takes no time, whatever the size.

alter table getwork.run
  add column ahead boolean not null default false;
comment on column getwork.run.ahead is 'It began ahead of need, to renew the shelf, and so ran beside clicks.';

alter table getwork.task_state
  add column measured boolean not null default false;
comment on column getwork.task_state.measured is 'One of the last five runs began ahead of need. Otherwise they ran on an idle machine, and longest says little about the next.';

---- create above / drop below ----

alter table getwork.task_state drop column measured;
alter table getwork.run drop column ahead;
