// Package pg is how a node talks to PostgreSQL. It holds the pools of connections ([OpenPools]), the choice of a pool for
// each statement ([Router]), transactions and their repetition ([Transact]), and the meaning of the database's errors for
// callers ([ProblemOf]) and operators ([LogLimiter]).
//
// A connection reaches a primary only ([ToPrimary]), speaks UTF-8, notices within seconds that the server's host vanished,
// and never cancels a commit. Nothing here knows getwork's tables.
package pg
