-- What is an alert of a task, and web hooks that are told of alerts, in the form of a chat. Older nodes work beside it: they go by the defaults,
-- and send events in getwork's own form, which a chat refuses, so a newer node sends them again.

alter table getwork.task_version add column alert_waiting interval check (alert_waiting >= interval '10 seconds'),
  add column alert_backlog_age interval check (alert_backlog_age >= interval '1 minute');
comment on column getwork.task_version.alert_waiting is 'How long somebody may wait unserved before it is an alert. Null: 5 minutes.';
comment on column getwork.task_version.alert_backlog_age is 'How old the oldest item that can be handed out may be before it is an alert. Null: any age.';

alter table getwork.hook add column form text check (form in ('slack', 'teams')), add column alerts jsonb;
comment on column getwork.hook.events is 'Which: work.assigned, work.closed, work.expired, run.failed, alert.begun, alert.ended.';
comment on column getwork.hook.form is 'How it gets them: as a message of that chat. Null: as JSON that says everything.';
comment on column getwork.hook.alerts is 'The alerts that it was last told of, and how often that has changed. Null: none yet.';

---- create above / drop below ----

comment on column getwork.hook.events is 'Which: work.assigned, work.closed, work.expired, run.failed.';
alter table getwork.hook drop column alerts, drop column form;
alter table getwork.task_version drop column alert_backlog_age, drop column alert_waiting;
