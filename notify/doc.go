// Package notify carries hints between nodes over PostgreSQL's LISTEN and NOTIFY.
//
// The tables are the truth. A notification is a hint that something is worth reading now: it holds ids only, it may be
// late, and it may never come. Whoever uses this package must stay correct, if slower, when not one arrives.
//
// [Message] is what is said. A round sends one in its own transaction ([NotifySQL]), and so does a change that comes alone. Of
// many, which are gathered, the [Announcer] tells after their commits, ten times a second at most: a commit with a NOTIFY
// holds a lock of the whole cluster while it flushes. The others know that it does, and look for themselves when they hear no more of it.
//
// [Listener] hears, on one direct connection of its own. A connection which says nothing looks the same whether nothing
// happens, a firewall dropped it, the host is frozen, or a pooler took LISTEN and forgot it. So the node sends itself an
// echo through another connection every few seconds. Only an echo that came back proves the path (Up); silence although
// echoes were sent disproves it (Down, close, connect again); and silence when no echo could be sent proves nothing.
// What was said between Down and Up is lost, therefore the receiver re-reads everything at each Up.
package notify
