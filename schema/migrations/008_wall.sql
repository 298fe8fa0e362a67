-- Sessions of screens on a wall. It takes no time, whatever the size.
alter table getwork.session
  add column wall        boolean not null default false,
  add column opens_until timestamptz;
comment on column getwork.session.wall is 'Of a screen on a wall, which shows counts and nothing else. An administrator made a link for it, and whoever opened that was asked nothing.';
comment on column getwork.session.opens_until is 'The link was not opened yet, and can be until then. id is that of the link''s code, which is no cookie. Null: it was, or there was none.';

---- create above / drop below ----

alter table getwork.session drop column opens_until, drop column wall;
