package torture

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"time"

	"getwork/cmd/lab/torture/history"
)

// caller makes calls to the nodes as one user, and records each with its answer.
type caller struct {
	stage *stage
	who   history.Who
	role  string
	pass  *pass      // what they show; nil: the nodes believe names
	rng   *rand.Rand // used only by the goroutine that calls
}

// transport makes a new connection for each call: net/http then repeats no request by itself, and a node's death is
// noticed at once.
var transport = &http.Transport{DisableKeepAlives: true}

// patience is how long a caller waits for an answer that the node does not hold.
const patience = 6 * time.Second

// node picks a node to ask. As a load balancer does, it mostly picks one that serves.
func (c *caller) node() *member {
	m := c.stage.members[c.rng.IntN(len(c.stage.members))]
	for i := 0; i < 3 && m.away.Load() > 0 && c.rng.IntN(10) > 0; i++ {
		m = c.stage.members[c.rng.IntN(len(c.stage.members))]
	}
	return m
}

// changes are the calls whose effects are pushed to others.
var changes = []history.Kind{history.Dispose, history.Extend, history.Reassign, history.Release, history.Claim, history.Cancel, history.Away}

// request describes one call.
type request struct {
	method, path string
	body         any
	header       []string      // names and values in turn
	held         time.Duration // the answer may take this much longer
	notNode      int           // if not 0: not the node before this number
	as           *badge        // shown instead of what the caller has
}

// do makes one call and records it. The caller sets in call what it is about; do sets the rest.
func (c *caller) do(ctx context.Context, call history.Call, r request) history.Call {
	return c.doMany(ctx, []history.Call{call}, r)[0]
}

// doMany makes one call about several pieces of work, and records it as the calls about one that it stands for. Without an answer, none
// of these has one.
func (c *caller) doMany(ctx context.Context, calls []history.Call, r request) []history.Call {
	m := c.node()
	for i := 0; i < 10 && m.number+1 == r.notNode; i++ {
		m = c.node()
	}
	call := history.Call{Kind: calls[0].Kind}
	with := c.show(ctx, r.as)
	ctx, cancel := context.WithTimeout(ctx, patience+r.held)
	defer cancel()
	revoked := c.stage.revoked.Load()
	began := c.stage.rec.Now()
	err := c.exchange(ctx, m.node.URL+r.path, r, with, &call)
	ended := c.stage.rec.Now()
	var results []result
	if err == nil && len(calls) > 1 && call.Status == http.StatusOK {
		if results, err = resultsOf(calls, call.Body); err != nil {
			c.stage.findings.add("answers", "node %d answered %s %s at %v with %s: %v", m.number, r.method, r.path, ended, call.Body, err)
		}
	}
	if err != nil { // or only half an answer came
		call = history.Call{Error: err.Error()}
	}
	for i := range calls {
		one := &calls[i]
		one.Who, one.Node, one.Held, one.By, one.Began, one.Ended = c.who, m.number, r.held, with.name, began, ended
		one.Status, one.Type, one.Retry, one.Tag, one.Body, one.Error = call.Status, call.Type, call.Retry, call.Tag, call.Body, call.Error
		if results != nil {
			one.Status, one.Type, one.Body = results[i].Status, results[i].Problem.Type, results[i].Work
		}
		recorded := *one
		c.stage.rec.Add(history.Entry{Call: &recorded})
		// Without its rights a node can't answer anything else.
		if one.Status == http.StatusInternalServerError && revoked%2 == 0 && revoked == c.stage.revoked.Load() {
			c.stage.findings.add("answers", "node %d answered 500 to %s %s at %v: an unexpected error, which the node's log names", m.number, r.method, r.path, ended)
		}
	}
	if call.Status/100 == 2 && slices.Contains(changes, calls[0].Kind) {
		select {
		case c.stage.answered <- m.number:
		default:
		}
	}
	if call.Status == http.StatusUnauthorized {
		c.pass.spoilt(with)
	}
	return calls
}

// result is what became of one of several pieces of work.
type result struct {
	ID      int64           `json:"id,string"`
	Status  int             `json:"status"`
	Work    json.RawMessage `json:"work"`
	Problem struct {
		Type string `json:"type"`
	} `json:"problem"`
}

// resultsOf reads the results of a call, which have the order of the pieces of work that it was about.
func resultsOf(calls []history.Call, body json.RawMessage) ([]result, error) {
	var all struct{ Results []result }
	if err := json.Unmarshal(body, &all); err != nil {
		return nil, err
	}
	if !slices.EqualFunc(all.Results, calls, func(r result, c history.Call) bool { return r.ID == c.Work }) {
		return nil, errors.New("the results are of other work")
	}
	return all.Results, nil
}

func (c *caller) exchange(ctx context.Context, url string, r request, with badge, call *history.Call) error {
	var payload io.Reader
	if r.body != nil {
		b, err := json.Marshal(r.body)
		if err != nil {
			return err
		}
		payload = bytes.NewReader(b)
	}
	sent, err := http.NewRequestWithContext(ctx, r.method, url, payload)
	if err != nil {
		return err
	}
	sent.Header = c.identity(with)
	if r.body != nil {
		sent.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(r.header); i += 2 {
		sent.Header.Set(r.header[i], r.header[i+1])
	}
	response, err := c.stage.to().RoundTrip(sent)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("%d, and then: %w", response.StatusCode, err)
	}
	call.Status, call.Retry, call.Tag = response.StatusCode, response.Header.Get("Retry-After"), response.Header.Get("ETag")
	if call.Status < 300 && len(body) > 0 {
		if !json.Valid(body) {
			return fmt.Errorf("%d, with a body that is not JSON: %q", call.Status, body)
		}
		call.Body = body
	}
	if call.Status >= 400 {
		var problem struct{ Type string }
		_ = json.Unmarshal(body, &problem)
		call.Type = problem.Type
	}
	return nil
}

// show returns what the caller shows: as, or what they have.
func (c *caller) show(ctx context.Context, as *badge) badge {
	switch {
	case as != nil:
		return *as
	case c.pass == nil:
		return badge{}
	}
	return c.pass.show(ctx)
}

func (c *caller) identity(with badge) http.Header {
	h := http.Header{}
	if c.pass != nil {
		c.pass.put(h, with)
	} else {
		h.Set("X-Getwork-User", c.who.User)
		h.Set("X-Getwork-Role", c.role)
	}
	if c.who.Instance != "" {
		h.Set("X-Getwork-Instance", c.who.Instance)
	}
	return h
}

// hold asks the node to hold the answer for some seconds.
func (r *request) hold(seconds int) {
	if seconds > 0 {
		r.header = append(r.header, "Prefer", "wait="+strconv.Itoa(seconds))
		r.held = time.Duration(seconds) * time.Second
	}
}

// unless makes the call conditional on a change of the request since the answer with that ETag; an empty ETag makes it
// unconditional.
func (r *request) unless(tag string) {
	if tag != "" {
		r.header = append(r.header, "If-None-Match", tag)
	}
}

// answered is the part of a request, in an answer or a message, that users need.
type answered struct {
	ID    int64  `json:"id,string"`
	Task  string `json:"task"`
	State string `json:"state"`
	Work  []held `json:"work"`
}

// held is the same part of a piece of work.
type held struct {
	ID     int64      `json:"id,string"`
	Task   string     `json:"task"`
	Item   string     `json:"item"`
	State  string     `json:"state"`
	Lease  *time.Time `json:"lease_expires_at"`
	Closed *time.Time `json:"closed_at"`
}

// pipeline is the same part of a pipeline.
type pipeline struct {
	Work     []held     `json:"work"`
	Requests []answered `json:"requests"`
}

// seconds returns the duration of a Retry-After.
func seconds(retry string, otherwise time.Duration) time.Duration {
	if d, err := time.ParseDuration(retry + "s"); err == nil && d > 0 {
		return d
	}
	return otherwise
}
