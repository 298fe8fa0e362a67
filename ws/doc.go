// Package ws is the live channel over WebSocket: it pushes changes of a user's work to the user's browser.
//
// The [Hub] knows every connection of the node. A connection registers with the node's feed, reads its snapshot,
// and then goes live, so that it misses nothing. Its events wait in a bounded queue, and no other connection waits for
// it: a client that is too slow is closed, and reconnects for a new snapshot. A few goroutines write for all connections,
// and only while there is something to write. An idle connection keeps one goroutine with a small stack, which reads.
//
// Only conn.go imports the WebSocket library, so replacing the library changes one file.
package ws
