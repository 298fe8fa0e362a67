// Package records reads what the tables say: tasks and their versions, requests with how long they will wait, work, pipelines,
// runs and past work. The engine, the live feed and the API share these reads. Nothing here takes a lock or writes.
package records
