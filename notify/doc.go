// Package notify carries hints between nodes over PostgreSQL's LISTEN and NOTIFY.
//
// The tables are the truth. A notification is a hint that something is worth reading now: it holds ids only, it may be
// late, and it may never come. A caller must stay correct, if slower, when none arrives.
//
// [Message] is the content of a notification. A round sends one in its own transaction ([NotifySQL]), and so does a change
// that comes alone. When many changes come, the [Announcer] gathers them and announces them after their commits, at most ten
// times a second, because a commit with a NOTIFY holds a cluster-wide lock while it flushes. The other nodes know that more
// announcements are to come, and read everything again when they stop.
//
// [Listener] receives messages, on one direct connection of its own. A silent connection looks the same whether nothing
// happens, a firewall dropped it, the host is frozen, or a pooler accepted LISTEN and forgot it. So the node sends itself an
// echo through another connection every few seconds. Only an echo that comes back proves the path (Up). Silence although
// echoes were sent disproves it (Down, close, connect again). Silence while no echo could be sent proves nothing. Messages
// between Down and Up are lost, so the receiver reads everything again at each Up.
//
// # Races
//
//   - A connection is dead and silent. The echo fails to come: connect again, and read everything.
//     TestFrozenConnectionIsNoticedAndReplaced
//   - A node dies before it announces. Only what was committed under its pledge is announced later, and the other nodes read
//     everything when nothing follows the pledge ([Announcer.Tell]). TestPledgeStandsOnlyWhileHeard
package notify
