// Package feed delivers events to everybody who follows on this node: sockets and event streams ([Stream]), and held
// answers ([Feed.Await]).
//
// NOTIFY names what changed ([Feed.Heard]). The feed's one loop ([Feed.Run]) reads that from the tables, once for all
// followers, and hands each their own. A lost NOTIFY costs time only: after a reconnect, for a node that went away without
// announcing what it owed, and after more changes than can be named, every follower's pipeline is read again.
//
// An announcement of a task may be lost with its node. So every ten seconds a node with followers reads the tasks that they
// follow, and a hash of all tasks and their versions.
//
// # Races
//
//   - Something commits between a snapshot and its first event. A stream registers, then reads the snapshot, then goes live;
//     what comes meanwhile queues behind the snapshot. TestNothingBetweenSnapshotAndEvents
//   - A node dies, and nobody announces what it had committed. It had promised more, so all followers are read again after
//     four seconds of silence, and every eight seconds until half a minute is over, since a commit may still be under way. A
//     node that has only begun to listen may have missed a promise, so it reads once more after four seconds. TestDebts,
//     TestToldOfManyChangesByNobody
package feed
