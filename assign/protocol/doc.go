// Package protocol holds no code but a model: the steps by which package assign/engine hands out work, in Promela, and a test in
// which Spin tries every order in which they can interleave, with nodes that die and connections that are cut between any
// two of them.
//
//   - getwork.pml is the protocol. Each line of defence can be taken away, and the test sees what becomes of it.
//   - story.pml is the protocol as the story has it, without the look again. Spin finds who is never served.
//   - story.trail.txt is how.
//
// docs/protocol.md tells what was checked and found, and which step is which function. Who changes record.go, look.go,
// run.go, round.go or orphan.go of package assign/engine asks whether the model still says the same.
package protocol
