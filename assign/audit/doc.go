// Package audit writes down who did what to people, tasks and other people's work.
//
// Each row is written in the transaction of its act: without the row there is no act. Rows are chained: each has the SHA-256
// of its own fields and of the row before it ([Row.Sum]). The end of the chain is one row, audit_head, which every writer locks
// last, after all other locks, so that writers can't deadlock on it. Acts are rare; clicks and dispositions write no audit.
//
// The chain does not stop whoever owns the database, since they could write another chain. So each row's number and hash are
// in the node's log as well, and the end of the chain once an hour ([Writer.Run]). With a log that was taken off the machine,
// [Verify] also finds a chain that was written anew, and one whose end was cut off.
package audit
