// Package ws is the live channel over WebSocket: what happens to a person's work is pushed to his browser.
//
// The [Hub] knows every connection of the node. A connection registers with the engine's feed, reads its snapshot,
// and then goes live, so that nothing falls between; its events wait in a bounded queue, and nobody ever waits for
// it: one that is too slow is closed, and comes back for a new snapshot. A few goroutines write for all of them, and only
// while there is something to write. What an idle connection keeps is one goroutine with a small stack, which reads.
//
// The WebSocket library is imported in conn.go and nowhere else, so that changing it is a change of one file.
package ws
