-- Ends by time are audited, too: a session's, of which nobody has done anything or which has lasted as long as it may, and a token's
-- expiry. Older nodes go on beside it, and audit none. What ended before has no row.

alter table getwork.session add column end_audited boolean not null default false;
alter table getwork.token add column end_audited boolean not null default false;
comment on column getwork.session.end_audited is 'That it ended by time has its row in the audit.';
comment on column getwork.token.end_audited is 'That it expired has its row in the audit, or it is a terminal''s, whose session has one.';

update getwork.session set end_audited = true where ended_at is null and least(ends_at, idle_at) <= clock_timestamp();
update getwork.token set end_audited = true where ended_at is null and expires_at <= clock_timestamp();

-- Not of idle_at, which moves with everything that somebody does: an index of it would be written each time.
create index session_unaudited on getwork.session (ends_at) where ended_at is null and not end_audited;
create index token_unaudited on getwork.token (expires_at) where ended_at is null and not end_audited;

---- create above / drop below ----

drop index getwork.session_unaudited;
drop index getwork.token_unaudited;
alter table getwork.session drop column end_audited;
alter table getwork.token drop column end_audited;
