-- Four tables are vacuumed earlier, and their indexes each time. An item that is taken, an event that is delivered, and a request
-- that is answered each leave an entry in the index that the next round or claim reads from its beginning. Only vacuum takes pages
-- full of such entries away. By default it comes when a fifth of a table is dead, which is two weeks' work beside a history of
-- ninety days, and each round reads past all of it. Even then it leaves indexes alone, by default, if the dead rows are on fewer
-- than 2 % of the table's pages, as they are where the oldest rows go first. Older nodes go on beside it, and gain as much.
--
-- Nobody who reads or writes waits for these locks, or behind them. So a try may be longer than usual: after a second an automatic
-- vacuum gives way, which could otherwise outlast a node's patience.
set local lock_timeout = '3s';

-- A thousand entries are a few pages of an index: smaller tables are left in peace.
alter table getwork.item set
  (autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.01, vacuum_index_cleanup = on);
alter table getwork.hook_event set
  (autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.01, vacuum_index_cleanup = on);
-- These have more indexes, and a vacuum reads them all.
alter table getwork.work set
  (autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.02, vacuum_index_cleanup = on);
alter table getwork.work_requested set
  (autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.02, vacuum_index_cleanup = on);

---- create above / drop below ----

set local lock_timeout = '3s';
alter table getwork.item reset (autovacuum_vacuum_threshold, autovacuum_vacuum_scale_factor, vacuum_index_cleanup);
alter table getwork.hook_event reset (autovacuum_vacuum_threshold, autovacuum_vacuum_scale_factor, vacuum_index_cleanup);
alter table getwork.work reset (autovacuum_vacuum_threshold, autovacuum_vacuum_scale_factor, vacuum_index_cleanup);
alter table getwork.work_requested reset (autovacuum_vacuum_threshold, autovacuum_vacuum_scale_factor, vacuum_index_cleanup);
