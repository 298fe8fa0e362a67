// Package pg is how a node talks to PostgreSQL: its pools of connections ([OpenPools]) and which of them a statement goes
// to ([Router]), how transactions begin and are repeated ([Transact]), and what an error of the database means to callers and
// to operators ([ProblemOf], [LogLimiter]).
//
// A connection reaches a primary only ([ToPrimary]), speaks UTF-8, notices within seconds that the server's host vanished,
// and never cancels a commit. Nothing here knows getwork's tables.
package pg
