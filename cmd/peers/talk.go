package main

// A client process is told what to do by one JSON document on its standard input, and answers on its standard output:
// first "begin" and "end" around what is measured, each of which waits for a word, so that clocks can be read while it
// does nothing, and then "done". The end of its input ends it.

// request is what a client is to do.
type request struct {
	Do      string  `json:"do"`   // see the measurements
	Mode    string  `json:"mode"` // the peer's settings: tuned, default, poll, notify
	Clients int     `json:"clients,omitempty"`
	Jobs    int     `json:"jobs,omitempty"`
	Seconds float64 `json:"seconds,omitempty"`

	// Of "open", which comes first.
	URL    string `json:"url,omitempty"`
	Schema string `json:"schema,omitempty"`
}

// What a client can answer.
const (
	atBegin  = "begin"
	atEnd    = "end"
	atDone   = "done"
	atFailed = "failed"
)

type answer struct {
	At    string `json:"at"`
	Error string `json:"error,omitempty"`

	Versions map[string]string `json:"versions,omitempty"` // of "open"

	// What was measured: jobs in seconds, or the milliseconds of each.
	Jobs      int       `json:"jobs,omitempty"`
	Seconds   float64   `json:"seconds,omitempty"`
	Latencies []float64 `json:"latencies,omitempty"`

	// What became of all jobs, also those that were not measured.
	Inserted int `json:"inserted,omitempty"`
	Once     int `json:"once,omitempty"`  // worked exactly once
	Twice    int `json:"twice,omitempty"` // worked more often
}
