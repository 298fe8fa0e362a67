-- People and programs, what they log in with, and what they did that somebody may ask about later. Read principal first, then
-- session and token, which are how a principal comes in, and audit, which remembers.
--
-- A row of principal, session or token that changes takes the id of the transaction that changed it (changed). Every node asks
-- each second for rows whose change it could not see a second ago, so that rights end everywhere, also without NOTIFY.

-- The table that everybody uses comes first: a try that waits for it in vain loses nothing else.
alter table getwork.work_requested
  add column credential  text,
  add column valid_until timestamptz;
comment on column getwork.work_requested.credential is 'What its user asked with: s: and the public id of a session, t: and the id of a token, j: or p: and the id of a principal for a JWT or a proxy, and a dot and the number of its rebinds if there were any. Null: --auth dev, or it was recorded before there was log-in.';
comment on column getwork.work_requested.valid_until is 'When that credential ends by itself; the request is not served afterwards. Null: it does not.';

create index work_requested_credential on getwork.work_requested (credential) where state = 'pending' and credential is not null;
comment on index getwork.work_requested_credential is 'What waits under a credential that ends.';
create index work_requested_valid on getwork.work_requested (valid_until) where state = 'pending' and valid_until is not null;
comment on index getwork.work_requested_valid is 'Whose credential ends next.';

create table getwork.principal (
  id         bigint generated always as identity primary key,
  name       text not null unique,
  name_key   text not null unique,
  iss        text not null,
  sub        text not null,
  kind       text not null check (kind in ('person', 'service')),
  role       text check (role in ('worker', 'agent', 'observer', 'manager')),
  admin      boolean not null default false,
  groups     text[] not null default '{}',
  blocked_at timestamptz,
  seen_at    timestamptz,
  former     jsonb,
  told_at    timestamptz,
  unsettled  boolean not null default false,
  rebound    integer not null default 0,
  created_at timestamptz not null default clock_timestamp(),
  changed    xid8 not null default pg_current_xact_id(),
  unique (iss, sub)
);
create index principal_changed on getwork.principal (changed);
create index principal_unsettled on getwork.principal (told_at) where unsettled;
comment on index getwork.principal_unsettled is 'Whom two proxies have contradicted each other about; few, and only while a proxy is set up wrongly.';
comment on table getwork.principal is 'Who can hold work under a name. Rows are never removed, so that nobody inherits a name, and with it another''s work.';
comment on column getwork.principal.id is 'Names the principal in other tables.';
comment on column getwork.principal.name is 'The user''s name, as work and requests have it. It stays, whatever the provider calls them later.';
comment on column getwork.principal.name_key is 'The name in one spelling of capitals and of characters that look alike: two names with one key would be mistaken for each other.';
comment on column getwork.principal.iss is 'Who vouches for them: the issuer''s URL; proxy; or getwork, for services and for tokens made by hand.';
comment on column getwork.principal.sub is 'What the issuer calls them, for ever.';
comment on column getwork.principal.kind is 'person, or service: a program with a name of its own.';
comment on column getwork.principal.role is 'The role of the last log-in, or of a service. Null: none, such as an admin whom no other grant matched.';
comment on column getwork.principal.admin is 'May manage people, sessions, tokens, and read the audit.';
comment on column getwork.principal.groups is 'The groups of the last log-in.';
comment on column getwork.principal.blocked_at is 'Set: they can''t come in, by any credential.';
comment on column getwork.principal.seen_at is 'When they last logged in, or, to the hour, when a proxy last named them.';
comment on column getwork.principal.former is 'Role, admin and groups before a proxy last said something else: if it says them again, two proxies contradict each other.';
comment on column getwork.principal.told_at is 'When a proxy last said something else of them.';
comment on column getwork.principal.unsettled is 'Proxies contradict each other about them. Live channels follow when that has been over for ten seconds.';
comment on column getwork.principal.rebound is 'How often their name was given to another account. It is part of credentials by JWT and proxy, so that those of the former account have ended.';
comment on column getwork.principal.created_at is 'When they first came in.';
comment on column getwork.principal.changed is 'The transaction that last changed what they may do.';

create table getwork.session (
  id               bytea primary key check (octet_length(id) = 32),
  public_id        text not null unique,
  principal        bigint not null references getwork.principal,
  sid              text,
  role             text check (role in ('worker', 'agent', 'observer', 'manager')),
  admin            boolean not null default false,
  groups           text[] not null default '{}',
  auth_time        timestamptz,
  created_at       timestamptz not null default clock_timestamp(),
  active_at        timestamptz not null default clock_timestamp(),
  idle_at          timestamptz,
  ends_at          timestamptz not null,
  refresh          bytea,
  refreshed_at     timestamptz,
  refreshing_until timestamptz,
  hint             bytea,
  address          inet,
  agent            text check (length(agent) <= 200),
  ended_at         timestamptz,
  ended_by         text,
  changed          xid8 not null default pg_current_xact_id(),
  check ((ended_at is null) = (ended_by is null))
);
create index session_principal on getwork.session (principal) where ended_at is null;
create index session_sid on getwork.session (sid) where ended_at is null and sid is not null;
create index session_changed on getwork.session (changed);
create index session_ended on getwork.session (ended_at) where ended_at is not null;
comment on table getwork.session is 'A browser''s log-in. Ended ones are kept for 30 days.';
comment on column getwork.session.id is 'SHA-256 of the cookie: what is read here opens nothing.';
comment on column getwork.session.public_id is 'What the session is called in lists and logs.';
comment on column getwork.session.principal is 'Whose it is.';
comment on column getwork.session.sid is 'What the identity provider calls its own session.';
comment on column getwork.session.role is 'The role at log-in, or at the last refresh. Null: the admin bit alone.';
comment on column getwork.session.admin is 'May manage people.';
comment on column getwork.session.groups is 'The groups at log-in, or at the last refresh.';
comment on column getwork.session.auth_time is 'When the provider last saw them prove who they are.';
comment on column getwork.session.created_at is 'When they logged in.';
comment on column getwork.session.active_at is 'When they last did something.';
comment on column getwork.session.idle_at is 'When it ends unless they do something first. Null: for observers, who only look.';
comment on column getwork.session.ends_at is 'When it ends in any case.';
comment on column getwork.session.refresh is 'The provider''s refresh token, sealed under a key that is not in the database.';
comment on column getwork.session.refreshed_at is 'When the provider last confirmed it.';
comment on column getwork.session.refreshing_until is 'A node asks the provider now, and may until then.';
comment on column getwork.session.hint is 'What the provider is shown at log-out, sealed like the refresh token.';
comment on column getwork.session.address is 'Where they logged in from.';
comment on column getwork.session.agent is 'The browser, as it calls itself.';
comment on column getwork.session.ended_at is 'When it ended.';
comment on column getwork.session.ended_by is 'What ended it: log-out, the provider, an admin, a newer log-in.';
comment on column getwork.session.changed is 'The transaction that last changed what it allows.';

create table getwork.token (
  id         text primary key,
  hash       bytea not null check (octet_length(hash) = 32),
  kind       text not null check (kind in ('personal', 'service', 'cli')),
  principal  bigint not null references getwork.principal,
  parent     bytea references getwork.session,
  label      text not null,
  role       text not null check (role in ('worker', 'agent', 'observer', 'manager')),
  admin      boolean not null default false,
  scopes     text[] not null,
  tasks      text[],
  made_by    bigint not null references getwork.principal,
  created_at timestamptz not null default clock_timestamp(),
  expires_at timestamptz not null,
  used_at    timestamptz,
  used_from  inet,
  ended_at   timestamptz,
  ended_by   text,
  changed    xid8 not null default pg_current_xact_id(),
  check ((ended_at is null) = (ended_by is null)),
  check ((kind = 'cli') = (parent is not null))
);
create index token_principal on getwork.token (principal) where ended_at is null;
create index token_parent on getwork.token (parent) where parent is not null;
create index token_changed on getwork.token (changed);
create index token_ended on getwork.token (ended_at) where ended_at is not null;
comment on table getwork.token is 'What a program shows instead of a log-in. Ended ones are kept for 30 days.';
comment on column getwork.token.id is 'What the token is called in lists and logs; a part of it.';
comment on column getwork.token.hash is 'SHA-256 of the whole token: what is read here opens nothing.';
comment on column getwork.token.kind is 'personal: of a person, with at most their rights; service: of a program with a name of its own; cli: a session''s, for a terminal.';
comment on column getwork.token.principal is 'Whose it is.';
comment on column getwork.token.parent is 'The session that a cli token ends with.';
comment on column getwork.token.label is 'What its owner calls it.';
comment on column getwork.token.role is 'The role that was asked for; it never allows more than its owner''s.';
comment on column getwork.token.admin is 'May manage people; only of tokens made on the database itself.';
comment on column getwork.token.scopes is 'What it may be used for: read, work, push, manage.';
comment on column getwork.token.tasks is 'The only tasks it may be used for. Null: all.';
comment on column getwork.token.made_by is 'Who made it.';
comment on column getwork.token.created_at is 'When.';
comment on column getwork.token.expires_at is 'When it ends by itself.';
comment on column getwork.token.used_at is 'When it was last used, to the minute.';
comment on column getwork.token.used_from is 'From where.';
comment on column getwork.token.ended_at is 'When it was ended.';
comment on column getwork.token.ended_by is 'Who or what ended it.';
comment on column getwork.token.changed is 'The transaction that last changed what it allows.';

create table getwork.once (
  what  text primary key,
  until timestamptz not null
);
create index once_until on getwork.once (until);
comment on table getwork.once is 'What may be used once: a log-in''s state, a code, a log-out message. Inserted, or refused.';
comment on column getwork.once.what is 'Its SHA-256.';
comment on column getwork.once.until is 'It is of no use after that, and removed.';

create table getwork.audit (
  n          bigint primary key,
  at         timestamptz not null,
  node       text not null,
  actor      text,
  by         text,
  credential text,
  address    inet,
  act        text not null,
  object     text,
  outcome    text not null,
  detail     jsonb not null,
  prev       bytea not null check (octet_length(prev) = 32),
  hash       bytea not null check (octet_length(hash) = 32)
);
create index audit_act on getwork.audit (act, n);
create index audit_actor on getwork.audit (actor, n);
comment on table getwork.audit is 'Who did what to people, tasks and other people''s work. Each row is written in the transaction of its act, and chained to the row before it by its hash.';
comment on column getwork.audit.n is 'Counts from 1 without gaps.';
comment on column getwork.audit.at is 'When.';
comment on column getwork.audit.node is 'The node that wrote it; direct, for a program that wrote to the database itself.';
comment on column getwork.audit.actor is 'Who did it. Null: nobody who is known, such as a log-in that was refused.';
comment on column getwork.audit.by is 'How they had come in: session, token, jwt, proxy, dev or direct.';
comment on column getwork.audit.credential is 'With what, as work_requested has it.';
comment on column getwork.audit.address is 'From where.';
comment on column getwork.audit.act is 'What: task.update, work.release, token.create and so on';
comment on column getwork.audit.object is 'To what: a task''s name, a user''s, a token''s id.';
comment on column getwork.audit.outcome is 'done, or refused.';
comment on column getwork.audit.detail is 'What else is to be known of it; never a secret.';
comment on column getwork.audit.prev is 'The hash of the row before it; zeros for the first.';
comment on column getwork.audit.hash is 'SHA-256 over the other fields.';

create table getwork.audit_head (
  one  boolean primary key default true check (one),
  n    bigint not null,
  hash bytea not null check (octet_length(hash) = 32)
);
insert into getwork.audit_head (n, hash) values (0, decode(repeat('00', 32), 'hex'));
comment on table getwork.audit_head is 'The end of the chain: one row, locked last by each transaction that adds to it.';
comment on column getwork.audit_head.one is 'There is one row.';
comment on column getwork.audit_head.n is 'The number of the last row of audit.';
comment on column getwork.audit_head.hash is 'Its hash.';

create function getwork.keep_audit() returns trigger language plpgsql as $$
begin
  if pg_catalog.current_setting('getwork_audit.cut', true) = 'yes' and tg_op = 'DELETE' then
    return old; -- getwork audit export --cut, which adds a row that says so
  end if;
  raise exception 'rows of audit are never changed or removed' using hint = 'getwork audit export --cut removes old rows, and says so in the chain';
end $$;
create trigger audit_kept before update or delete on getwork.audit for each row execute function getwork.keep_audit();
create trigger audit_not_emptied before truncate on getwork.audit for each statement execute function getwork.keep_audit();
comment on function getwork.keep_audit() is 'Against accidents. The owner of the table can drop it: what shows tampering is the chain, beside the log of the nodes.';

-- Asked as a click is recorded, and under the assign lock. In PL/pgSQL, which keeps the plans of its statements: a function in
-- SQL would be planned at each call. Stable: it sees what the calling statement sees.
create function getwork.ended(credential text) returns boolean language plpgsql stable as $$
declare
  alive boolean;
begin
  case pg_catalog.left(credential, 2)
    when 's:' then
      select s.ended_at is null and s.ends_at > pg_catalog.clock_timestamp() and p.blocked_at is null and s.role in ('worker', 'agent', 'manager') into alive
      from getwork.session s join getwork.principal p on p.id = s.principal
      where s.public_id = pg_catalog.substr(credential, 3);
    when 't:' then
      select t.ended_at is null and t.expires_at > pg_catalog.clock_timestamp() and p.blocked_at is null
        and (t.parent is null or s.ended_at is null and s.ends_at > pg_catalog.clock_timestamp())
        and coalesce(s.role, p.role) in ('worker', 'agent', 'manager') into alive
      from getwork.token t join getwork.principal p on p.id = t.principal left join getwork.session s on s.id = t.parent
      where t.id = pg_catalog.substr(credential, 3);
    when 'j:', 'p:' then
      select p.blocked_at is null and (credential like 'j:%' or p.role in ('worker', 'agent', 'manager')) into alive
      from getwork.principal p
      where p.id = pg_catalog.split_part(pg_catalog.substr(credential, 3), '.', 1)::bigint
        and p.rebound = coalesce(nullif(pg_catalog.split_part(credential, '.', 2), ''), '0')::integer;
    else
      alive := false;
  end case;
  return alive is not true;
end $$;
comment on function getwork.ended(text) is 'Whether a credential, written as in work_requested, has ended, or its owner is blocked or has no role that takes work. An unknown one has.';

---- create above / drop below ----

drop function getwork.ended(text);
drop table getwork.audit_head;
drop table getwork.audit;
drop function getwork.keep_audit();
drop table getwork.once;
drop table getwork.token;
drop table getwork.session;
drop table getwork.principal;
drop index getwork.work_requested_valid;
drop index getwork.work_requested_credential;
alter table getwork.work_requested drop column valid_until, drop column credential;
