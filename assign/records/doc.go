// Package records reads what the tables say: tasks and their versions, requests and how long they will wait, work, pipelines,
// runs and past work. The engine, the live feed and the API share these reads. Nothing here writes or takes a lock.
//
// # Races
//
//   - The clock is set back, and a shelf would last until it shows the old time again. A shelf whose run is of a later time
//     than the clock shows is not fresh ([ShelfCame]). TestShelfOfALaterTimeIsNotFresh
package records
