// Package torture breaks a cluster of getwork in every way that it should survive, under load, and has what happened
// judged. [Run] starts a private PostgreSQL and several nodes, each of which reaches the database through two proxies of
// its own, one for its listener; it lets users, programs and managers work through the public interface; it kills,
// freezes, cuts and restarts at random; it heals everything, has them work on for a quiet while, of which all that happens must
// be told by push; it waits until nobody waits any more, and gives the recorded history and the final tables to package checker.
//
//	options.go, scenario.go   what is wanted
//	stage.go, member.go       PostgreSQL, the nodes and their proxies
//	task.go                   the tasks, which between them use every path through a round
//	books.go                  a world that the query of one of them looks at, and people change
//	crowd.go                  who works: person.go one of them, click.go, fate.go how work ends,
//	                          socket.go, stream.go their live channels, manager.go who pushes, pauses, reassigns
//	plan.go, storm.go         which faults come when; fault.go carries them out, jump.go those of the clock
//	restore.go, upgrade.go, grants.go, past.go   what some scenarios have beside the faults
//	call.go                   every call is recorded with its answer
//	sampler.go                how often the ranking query executes at once, seen from the server
//	settle.go, report.go      the end
//
// The seed decides the sequence of faults and what everybody would like to do. What comes of it also depends on the
// machine's timing, so the same seed does not give the same history.
package torture
