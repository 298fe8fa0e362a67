// Package ranking executes SQL that users have written: ranking queries, rechecks and previews.
//
// A task's query is wrapped so that one execution returns the items that can be handed out, best first. It runs on the run
// lock's own connection, or on a separate query database ([Ranker.Rank]). User SQL is executed read only, with the query
// role's rights and a time limit, and leaves nothing behind: no role, no setting, no advisory lock. [ErrQuery] marks the
// query's own fault, which fails the requests; after any other error the query is tried again.
//
// Where users log in, a query that names a function which could do more than read is refused, wherever it would be planned or
// executed ([Config].Confined).
package ranking
