-- How a task is listed, and how its items are shown. It takes no time, whatever the size.
alter table getwork.task_version
  add column position integer,
  add column display  jsonb check (jsonb_typeof(display) = 'object');
comment on column getwork.task_version.position is 'The task''s place among those that people see, lowest first. Null: after those, by title.';
comment on column getwork.task_version.display is 'How an item is shown to people: title, labels, formats, order, link. Null: by the types and names of its details.';

---- create above / drop below ----

alter table getwork.task_version drop column display, drop column position;
