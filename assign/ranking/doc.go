// Package ranking executes somebody else's SQL: ranking queries, rechecks, previews.
//
// A task's query is wrapped so that one execution tells what can be handed out, best first. It runs on the run lock's own
// connection, or on a query database of its own ([Ranker.Rank]). Everything of somebody's is executed read only, with the query
// role's rights and a time limit, and nothing of it stays behind: not the role, not a setting, not an advisory lock. [ErrQuery]
// tells the query's own fault from the world's: the former fails the requests, the latter is tried again.
package ranking
