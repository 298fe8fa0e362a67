-- What is an alert of a task. Older nodes work beside it, and go by the defaults.

alter table getwork.task_version add column alert_waiting interval check (alert_waiting >= interval '10 seconds'),
  add column alert_backlog_age interval check (alert_backlog_age >= interval '1 minute');
comment on column getwork.task_version.alert_waiting is 'How long somebody may wait unserved before it is an alert. Null: 5 minutes.';
comment on column getwork.task_version.alert_backlog_age is 'How old the oldest item that can be handed out may be before it is an alert. Null: any age.';

---- create above / drop below ----

alter table getwork.task_version drop column alert_backlog_age, drop column alert_waiting;
