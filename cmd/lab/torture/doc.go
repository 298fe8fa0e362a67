// Package torture breaks a cluster of getwork in every way that it should survive, under load, and judges what
// happened. [Run] starts a private PostgreSQL and several nodes. Each node reaches the database through two proxies of
// its own, one of them for its listener. Users, programs and managers work through the public interface, while Run
// kills, freezes, cuts and restarts at random. Then it heals everything, and people work on for a quiet while, in which
// every change must be pushed. At the end it waits until no request waits, and gives the recorded history and the final
// tables to package checker.
//
//	options.go, scenario.go   the settings of a run
//	stage.go, member.go       PostgreSQL, the nodes and their proxies
//	task.go                   the tasks, which together use every path through a round
//	books.go                  a world that one task's query reads and people change
//	crowd.go                  everybody who works: person.go a user, click.go their clicks,
//	                          fate.go how work ends, reasons.go why, aside.go what is put aside,
//	                          socket.go, stream.go live channels, manager.go pushes, pauses, reassignments
//	several.go                a chain of tasks whose items several complete, and what people can
//	production.go, receiver.go   a query login, and where web hooks lead
//	login.go, pass.go         a provider, and what everybody shows, in the scenario in which people log in
//	plan.go, storm.go         when faults come; fault.go carries them out, jump.go those of the clock,
//	                          ends.go those of rights
//	restore.go, upgrade.go, grants.go, past.go   what some scenarios do beside the faults
//	call.go                   records every call with its answer
//	sampler.go                how many ranking queries run at the same time, as the server shows
//	settle.go, report.go      the end
//
// The seed decides the sequence of faults and everybody's intentions. The outcome also depends on the machine's timing,
// so the same seed does not give the same history.
package torture
