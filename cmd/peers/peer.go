package main

import "os"

// peer is a queue to measure.
type peer struct {
	key, name    string
	command      []string // starts its client process
	measurements []measurement

	// count is a query for the number of jobs that are done, and of all others; %s is the schema.
	count   string
	deletes bool // it deletes jobs that are done
}

// measurement is a request to a client, and the meaning of its answer.
type measurement struct {
	key, name     string
	kind          kind
	request       request
	jobsPerSecond int // how many jobs to insert beforehand for each second of measuring, if any
}

type kind int

const (
	rate    kind = iota // jobs per second, and the CPU of each
	latency             // milliseconds, one job at a time
	idle                // CPU per second
)

const countRiver = `
select count(*) filter (where state = 'completed' and attempt = 1), count(*) filter (where state <> 'completed' or attempt <> 1)
from %s.river_job`

func riverQueue() peer {
	return peer{
		key: "river", name: "River", command: []string{ownPath(), riverCommand}, count: countRiver,
		measurements: []measurement{
			{key: "insert_8", name: "insert one by one, 8 clients", request: request{Do: "insert", Clients: 8}},
			{key: "insert_32", name: "insert one by one, 32 clients", request: request{Do: "insert", Clients: 32}},
			{key: "insert_and_work", name: "insert one and work it, 32 clients, tuned", request: request{Do: "insert_and_work", Mode: "tuned", Clients: 32}},
			{key: "insert_and_work_default", name: "insert one and work it, 32 clients, defaults", request: request{Do: "insert_and_work", Mode: "default", Clients: 32}},
			{key: "work", name: "work what was inserted in bulk, tuned", request: request{Do: "work", Mode: "tuned"}, jobsPerSecond: 120_000},
			{key: "latency", name: "insert call to Work, idle, tuned", kind: latency, request: request{Do: "latency", Mode: "tuned"}},
			{key: "latency_default", name: "insert call to Work, idle, defaults", kind: latency, request: request{Do: "latency", Mode: "default"}},
			{key: "idle", name: "nothing to do, tuned", kind: idle, request: request{Do: "idle", Mode: "tuned"}},
			{key: "idle_default", name: "nothing to do, defaults", kind: idle, request: request{Do: "idle", Mode: "default"}},
		},
	}
}

// Graphile Worker deletes a job that is done.
const countGraphile = `select 0, count(*) from %s._private_jobs`

func (m *modules) graphile() peer {
	return peer{
		key: "graphile", name: "Graphile Worker", command: m.client("graphile.mjs"), count: countGraphile, deletes: true,
		measurements: []measurement{
			{key: "insert_1", name: "addJob one by one, 1 client", request: request{Do: "insert", Clients: 1}},
			{key: "insert_8", name: "addJob one by one, 8 clients", request: request{Do: "insert", Clients: 8}},
			{key: "insert_32", name: "addJob one by one, 32 clients", request: request{Do: "insert", Clients: 32}},
			{key: "work", name: "work what was added in bulk, concurrency 24, tuned", request: request{Do: "work", Mode: "tuned"}, jobsPerSecond: 20_000},
			{key: "latency", name: "addJob call to run, idle", kind: latency, request: request{Do: "latency", Mode: "default"}},
		},
	}
}

const countBoss = `
select count(*) filter (where state = 'completed' and retry_count = 0), count(*) filter (where state <> 'completed' or retry_count <> 0)
from %s.job where name in ('numbered', 'notified')`

func (m *modules) boss() peer {
	return peer{
		key: "pgboss", name: "pg-boss", command: m.client("pgboss.mjs"), count: countBoss,
		measurements: []measurement{
			{key: "insert_8", name: "send one by one, 8 clients", request: request{Do: "insert", Clients: 8}},
			{key: "insert_32", name: "send one by one, 32 clients", request: request{Do: "insert", Clients: 32}},
			{key: "work", name: "fetch and complete in batches of 500", request: request{Do: "work"}, jobsPerSecond: 20_000},
			{key: "latency_poll", name: "send call to handler, idle, polls every 0.5 s", kind: latency, request: request{Do: "latency", Mode: "poll"}},
			{key: "latency_notify", name: "send call to handler, idle, with NOTIFY", kind: latency, request: request{Do: "latency", Mode: "notify"}},
		},
	}
}

func ownPath() string {
	path, err := os.Executable()
	if err != nil {
		return os.Args[0]
	}
	return path
}
