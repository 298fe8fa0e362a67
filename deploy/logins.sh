#!/bin/sh
# Makes getwork's two logins, as the image of PostgreSQL makes the database: the node's, and one that runs the queries of tasks. Let
# the second read your own tables: grant select on … to getwork_query
set -eu
psql -v ON_ERROR_STOP=1 -U "${POSTGRES_USER:-postgres}" -d "$POSTGRES_DB" \
  -v node="$GETWORK_DB_PASSWORD" -v query="$GETWORK_QUERY_PASSWORD" <<'END'
create role getwork login password :'node';
create role getwork_query login password :'query';
grant create on database :"DBNAME" to getwork;
END
