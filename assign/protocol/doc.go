// Package protocol holds no code but models: the steps by which package assign/engine hands out work, in Promela. In its
// test Spin tries every order in which the steps can interleave, with nodes that die and connections that are cut between
// any two of them.
//
//   - getwork.pml is the protocol. The test takes away each line of defence, and checks the consequence.
//   - next.pml is one request over several tasks, which has no code yet: what it must rely on, and what breaks otherwise.
//   - story.pml is the protocol as it was first, where nobody looks again. Spin finds a request that is never served.
//   - story.trail.txt is how that happens.
//
// docs/protocol.md lists what was checked and found, and which step is which function. If you change record.go, serve.go,
// run.go, round.go or rescuer.go of package assign/engine, check that the model still does the same.
package protocol
