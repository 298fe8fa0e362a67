// Package feed delivers events to everybody who follows on this node: sockets and event streams ([Stream]), and held
// answers ([Feed.Await]).
//
// NOTIFY names what changed ([Feed.Heard]). The feed's one loop ([Feed.Run]) reads that from the tables, once for all
// followers, and hands each their own. A lost NOTIFY costs time only: after a reconnect, for a node that went away without
// announcing what it owed, and after more changes than can be named, every follower's pipeline is read again.
package feed
