// Package pg is how a node talks to PostgreSQL. It holds the pools of connections ([OpenPools]), the choice of a pool for
// each statement ([Router]), transactions and their repetition ([Transact]), and the meaning of the database's errors for
// callers ([ProblemOf]) and operators ([LogLimiter]).
//
// A connection reaches a primary only ([ToPrimary]), speaks UTF-8, notices within seconds that the server's host vanished,
// and never cancels a commit. Nothing here knows getwork's tables.
//
// A node has eight connections for calls, four for the engine's own work, two for NOTIFY and health checks, which touch no
// table, one more than --max-runs for queries, and the listener's. With a query database there are --max-runs for the locks of
// runs, and two more than that over there.
//
// # Races
//
//   - Calls wait for a lock that somebody holds by hand, or come faster than they can be served, and rounds wait behind them.
//     The engine's own work and announcements have connections of their own ([Router]). A call waits for two seconds at the
//     gate of package web, then it is answered 429, and for 8 s for a lock, then 503. TestCallsStarveNothingElse,
//     TestLockedTable
//   - COMMIT is sent along with a write that then touches the wrong number of rows. In that case the statement divides by
//     zero, and PostgreSQL skips COMMIT ([Writes]). TestClickWhoseWriteTouchesTooLittle
package pg
