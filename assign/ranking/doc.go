// Package ranking executes SQL that users have written: ranking queries, rechecks and previews.
//
// A task's query is wrapped so that one execution returns the items that can be handed out, best first. It runs on the run
// lock's own connection, or on a separate query database ([Ranker.Rank]). User SQL is executed read only, with the query
// role's rights and a time limit, and leaves nothing behind: no role, no setting, no advisory lock. [ErrQuery] marks the
// query's own fault, which fails the requests; after any other error the query is tried again.
//
// Where users log in, a query that names a function which could do more than read is refused, wherever it would be planned or
// executed ([Config].Confined).
//
// A role does not confine a malicious query: set_config in a select can switch back to the login's own. A read-only
// transaction does not cover large objects before PostgreSQL 16. So the login's rights are the limit; docs/security.md says
// what is prevented.
//
// A query database knows nothing of getwork's schema. Its rows are read as they come, not through a cursor, for which
// PostgreSQL makes no parallel plan. For each thousand, a statement on the primary drops the blocked items, and once there are
// enough, the query is cancelled. The details of one result take at most 256 MiB of the node's memory, those of a preview 8
// MiB; a run with more fails.
//
// # Races
//
//   - The replica lags, or its clock is ahead. A run records the primary's snapshot from before its query, and the time up to
//     which the replica has replayed, or the primary's if that is earlier, less five seconds. An item is left out if either
//     does not show its closing, and so does a claim. TestJustClosedElsewhere
//   - A hash join loses the ranking's order. The wrapper joins and sorts nothing: sub-queries between select and from look up
//     what blocks an item. TestRankingKeepsItsOrder
//   - A comment at the query's end swallows the wrapper's bracket, or a second statement is smuggled in. Line breaks surround
//     the query. It is parsed alone when the task is saved, and executed by the extended protocol, which takes one statement.
//     TestPreviewIsRefused
//   - The query writes. Its transaction is read only under a savepoint, which can't be switched back. TestQueryMayNotWrite
//   - The query leaves its role, writes a file, or executes SQL that nobody has seen. Its login may not. Where users log in, a
//     text that names a volatile function is refused before it is planned. TestDangerousLoginsAreRefused,
//     TestEscapesAreRefusedWhenSaved
//   - The query switches its time-out off, and the recheck after it never ends. Each recheck begins at the savepoint before
//     the query, with role and time-out set again. The node's own clock bounds both. TestRecheckDoesNotEscapeItsTimeout
//   - Advisory locks that the query took stay with the idle connection. They may be getwork's own, or so many that the server
//     has no memory for others. They are given back with the rollback, in one message. TestAdvisoryLocksEndWithTheQuery,
//     TestFullLockTableIsGivenBack
package ranking
