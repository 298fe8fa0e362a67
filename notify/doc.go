// Package notify carries hints between nodes over PostgreSQL's LISTEN and NOTIFY.
//
// The tables are the truth. A notification is a hint that something is worth reading now: it holds ids only, it may be
// late, and it may never come. Whoever uses this package must stay correct, if slower, when not one arrives.
//
// [Message] is what is said. A round sends one in its own transaction ([NotifySQL]); everything else that changes is
// gathered by the [Announcer] and sent after its commit, ten times a second at most. Nothing is sent per row or click: a
// commit with a NOTIFY holds a lock of the whole cluster while it flushes.
//
// [Listener] hears, on one direct connection of its own. A connection which says nothing looks the same whether nothing
// happens, a firewall dropped it, the host is frozen, or a pooler took LISTEN and forgot it. So the node sends itself an
// echo through another connection every few seconds. Only an echo that came back proves the path (Up); silence although
// echoes were sent disproves it (Down, close, connect again); and silence when no echo could be sent proves nothing.
// What was said between Down and Up is lost, therefore the receiver re-reads everything at each Up.
package notify
