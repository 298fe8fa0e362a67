-- Comments that said less than the nodes do. Older nodes go on beside it. The time-out is as in 021: a comment takes the same lock.
set local lock_timeout = '3s';

comment on column getwork.work_requested.run_id is 'The run whose result answered it, or whose failure ended it. While it waits, or if it ended otherwise: the run that left it to wait for more of its result.';
comment on column getwork.work_requested.look_after is 'Null: no round has read it yet, or a run left it to wait for more of its result, see run_id. Set by a round that read it and left it lingering: the next time that it alone is a reason to run.';
comment on function getwork.ended_among(text[]) is 'Those of the credentials, written as in work_requested, that have ended, or whose owner is blocked or has no role that takes work. Unknown ones have; nulls are passed over. How long a personal token works without its owner is a setting of the nodes, and not asked here.';

---- create above / drop below ----

set local lock_timeout = '3s';
comment on column getwork.work_requested.run_id is 'The run whose result answered it.';
comment on column getwork.work_requested.look_after is 'Null: no round has read it yet. Set by a round that read it and left it lingering: the next time that it alone is a reason to run.';
comment on function getwork.ended_among(text[]) is 'Those of the credentials, written as in work_requested, that have ended, or whose owner is blocked or has no role that takes work. Unknown ones have; nulls are passed over.';
