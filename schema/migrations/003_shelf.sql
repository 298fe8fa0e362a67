-- A shelf that is renewed while its task is in use, and whose items are rechecked; and cheaper writes.

alter table getwork.task_version
  add column recheck text;
comment on column getwork.task_version.recheck is 'A cheap query that says of a few items whether they still match: one SELECT on $1 text[], their keys, that returns those in a column "item". Null: none; what a run found is handed out while it is fresh.';

create index candidate_item on getwork.candidate (run_id, item);
comment on index getwork.candidate_item is 'A claim, or an explanation, finds its item here, however much is on the shelf.';

alter table getwork.task_state
  add column used_at    timestamptz,
  add column shelf_size bigint not null default 0,
  add column shelf_left bigint not null default 0,
  add column usual      interval,
  add column longest    interval;
comment on column getwork.task_state.used_at is 'When a round last answered somebody, or first read who lingers. A shelf is kept fresh for a task that was used within its last fresh_for.';
comment on column getwork.task_state.shelf_size is 'How many candidates its run''s own round left on the shelf.';
comment on column getwork.task_state.shelf_left is 'How many of those are left, as far as rounds have counted. It tells when the shelf runs low; what is held, work says.';
comment on column getwork.task_state.usual is 'How long a run of the query in force takes: the median of the last five. Null: none has finished.';
comment on column getwork.task_state.longest is 'The longest of those.';

-- These references can't break: tasks and runs are never removed, and requests are removed with their work (see
-- retention.go). Looking them up for each row was half of what writing work cost.
alter table getwork.work
  drop constraint work_task_id_fkey,
  drop constraint work_run_id_fkey,
  drop constraint work_request_id_fkey;
alter table getwork.work_requested drop constraint work_requested_run_id_fkey;
alter table getwork.candidate drop constraint candidate_run_id_fkey;

-- It locked the request after the key; a round on a fresh shelf locks them in the opposite order, so they could deadlock.
alter table getwork.idempotency_key drop constraint idempotency_key_request_id_fkey;

-- While a table has no statistics, every index that begins with the task looks as good to the planner as the right one, and
-- it keeps a plan once made. So this index, for reading history, begins with an expression that no other query has.
drop index getwork.work_task;
create index work_task on getwork.work ((task_id + 0), id);

-- No query uses it any more.
drop index getwork.work_requested_holder;

-- Few of thousands of waiting requests linger, and every click asks when the next lingering one is due.
create index work_requested_look on getwork.work_requested (task_id, look_after) where state = 'pending' and look_after is not null;
create index work_requested_linger on getwork.work_requested (task_id, linger_until) where state = 'pending' and linger_until is not null;

---- create above / drop below ----

drop index getwork.work_requested_linger;
drop index getwork.work_requested_look;
create index work_requested_holder on getwork.work_requested (task_id, user_name, instance, id);
drop index getwork.work_task;
create index work_task on getwork.work (task_id, id);
alter table getwork.idempotency_key add constraint idempotency_key_request_id_fkey foreign key (request_id) references getwork.work_requested on delete cascade;
alter table getwork.candidate add constraint candidate_run_id_fkey foreign key (run_id) references getwork.run on delete cascade;
alter table getwork.work_requested add constraint work_requested_run_id_fkey foreign key (run_id) references getwork.run;
alter table getwork.work
  add constraint work_task_id_fkey foreign key (task_id) references getwork.task,
  add constraint work_run_id_fkey foreign key (run_id) references getwork.run,
  add constraint work_request_id_fkey foreign key (request_id) references getwork.work_requested on delete set null;
alter table getwork.task_state drop column used_at, drop column shelf_size, drop column shelf_left, drop column usual, drop column longest;

drop index getwork.candidate_item;
alter table getwork.task_version
  drop column recheck;
