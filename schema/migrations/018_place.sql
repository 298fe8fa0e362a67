-- A shelf is put up in half the time. Its items are found by their keys in a table that is written once for each shelf, instead of in
-- an index that was written, somewhere else each time, for each candidate. Older nodes go on beside it: what they put on the shelf is
-- found, too, if more slowly, and they read a whole shelf to find an item by its key.

create table getwork.candidate_place (
  run_id bigint not null,
  bucket integer not null,
  ranks  bigint[] not null,
  primary key (run_id, bucket)
);
comment on table getwork.candidate_place is 'Where the candidates of a run are, by their keys: a claim, or an explanation, finds its item here, however much is on the shelf. Removed with the candidates.';
comment on column getwork.candidate_place.run_id is 'The run that ranked them.';
comment on column getwork.candidate_place.bucket is 'Of the item''s key, see candidate_bucket.';
comment on column getwork.candidate_place.ranks is 'Those of all candidates in this bucket.';

-- A million candidates are 61 a bucket.
create function getwork.candidate_bucket(item text) returns integer language sql immutable parallel safe as $$
  select pg_catalog.hashtext(item collate "C") & 16383
$$;

create function getwork.shelved(run bigint, key text) returns setof getwork.candidate language sql stable as $$
  select c.*
  from getwork.candidate_place p
  cross join lateral pg_catalog.unnest(p.ranks) as at (rank)
  join getwork.candidate c on c.run_id = p.run_id and c.rank = at.rank
  where p.run_id = shelved.run and p.bucket = getwork.candidate_bucket(shelved.key) and c.item = shelved.key
  union all
  select c.*
  from getwork.candidate c
  where c.run_id = shelved.run and c.item = shelved.key
    and not exists (select from getwork.candidate_place p where p.run_id = shelved.run)
$$;
comment on function getwork.shelved(bigint, text) is 'The candidate with this key that the run put on the shelf. The whole shelf is read if it is short, or if an older node has put it up.';

-- Of short shelves as well, this once.
insert into getwork.candidate_place (run_id, bucket, ranks)
select c.run_id, getwork.candidate_bucket(c.item), pg_catalog.array_agg(c.rank)
from getwork.candidate c
group by 1, 2;

drop index getwork.candidate_item;

---- create above / drop below ----

create index candidate_item on getwork.candidate (run_id, item);
comment on index getwork.candidate_item is 'A claim, or an explanation, finds its item here, however much is on the shelf.';
drop function getwork.shelved(bigint, text);
drop function getwork.candidate_bucket(text);
drop table getwork.candidate_place;
