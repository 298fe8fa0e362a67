// Package manage is what managers do to tasks and to work: they make, change, restore, pause and delete tasks, release and reassign work
// that is held, and put items back that were never to return.
//
// Everything is decided under the assign lock of the tasks that it concerns, as in a round, and never under the run lock: a manager does
// not wait for a query. The audit's row is the last that an act's transaction writes before its announcement: whoever has the end of the
// audit's chain keeps every other act waiting, and so must wait for nothing. When the act is committed, the engine wakes the tasks that
// can go on.
//
// In tasks.go: create, change, restore, pause, delete. In work.go: [Release], [Redrive], [Reassign]. In conflicts.go: four eyes.
package manage
