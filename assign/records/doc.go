// Package records reads what the tables say: tasks and their versions, requests and how long they will wait, work, pipelines,
// runs and past work. The engine, the live feed and the API share these reads. Nothing here writes or takes a lock.
package records
