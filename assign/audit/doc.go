// Package audit writes down who did what to people, tasks and other people's work.
//
// Each row is written in the transaction of its act: without the row there is no act. Rows are chained: each has the SHA-256
// of its own fields and of the row before it ([Row.Sum]). The end of the chain is one row, audit_head, which every writer locks
// last, after all other locks, so that writers can't deadlock on it. Acts are rare; clicks and dispositions write no audit.
//
// The chain does not stop whoever owns the database, since they could write another chain. So each row's number and hash are
// in the node's log as well, and the end of the chain once an hour ([Writer.Run]). With a log that was taken off the machine,
// [Verify] also finds a chain that was written anew, and one whose end was cut off.
//
// Rows are numbered without gaps, so an act waits for the commit of the act before it, on any node. An act that froze under
// the lock is ended after 5 s. Reading somebody else's pipeline is written once an hour for each pair and node; a row about a
// query has the SHA-256 of its text. Rows are logged after the commit: the number of a row that was rolled back goes to
// another act, and a log with both would accuse somebody falsely. If the connection is lost during the commit, the line says
// commit=unknown, and [Verify] does not count it.
//
// Rows are removed by getwork audit export --cut alone, from the beginning. The transaction adds a row with the number and
// hash of the last one, and [Verify] accepts no other gap.
//
// # Races
//
//   - A node dies between an act and its row. They are one transaction. TestActsAreAudited
//   - Two acts have the same predecessor, or deadlock on the chain's end. Each reads it under its lock, the last.
//     TestManyWriters
//   - A node dies between a commit and its line in the log. The next line still covers that row, since each hash covers all
//     before it. TestLogOfLostCommits
package audit
