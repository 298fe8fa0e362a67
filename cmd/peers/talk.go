package main

// A client process gets each request as one JSON document on its standard input, and answers on its standard output:
// "begin" and "end" around the measurement, and then "done". After "begin" and "end" it waits for a word, so that
// clocks can be read while it is idle. It ends when its input does.

// request is a request to a client.
type request struct {
	Do      string  `json:"do"`   // see the measurements
	Mode    string  `json:"mode"` // the peer's settings: tuned, default, poll, notify
	Clients int     `json:"clients,omitempty"`
	Jobs    int     `json:"jobs,omitempty"`
	Seconds float64 `json:"seconds,omitempty"`

	// Only in "open", which comes first.
	URL    string `json:"url,omitempty"`
	Schema string `json:"schema,omitempty"`
}

// The possible answers of a client.
const (
	atBegin  = "begin"
	atEnd    = "end"
	atDone   = "done"
	atFailed = "failed"
)

type answer struct {
	At    string `json:"at"`
	Error string `json:"error,omitempty"`

	Versions map[string]string `json:"versions,omitempty"` // in the answer to "open"

	// The measurement: jobs and seconds, or the milliseconds of each job.
	Jobs      int       `json:"jobs,omitempty"`
	Seconds   float64   `json:"seconds,omitempty"`
	Latencies []float64 `json:"latencies,omitempty"`

	// The outcome of all jobs, including those that were not measured.
	Inserted int `json:"inserted,omitempty"`
	Once     int `json:"once,omitempty"`  // worked exactly once
	Twice    int `json:"twice,omitempty"` // worked more often
}
