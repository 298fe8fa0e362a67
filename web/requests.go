package web

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"getwork/assign"
	"getwork/assign/audit"
	"getwork/assign/rights"
)

// clickBody is what a click asks for.
type clickBody struct {
	Count  int              `json:"count"`
	Linger assign.Duration  `json:"linger"`
	Lease  *assign.Duration `json:"lease"`
}

// getWork is the click: 201 with a complete request, 202 with a pending one.
func (s *server) getWork(w http.ResponseWriter, r *http.Request, name string) error {
	var body clickBody
	if err := decode(w, r, &body); err != nil {
		return err
	}
	return s.click(w, r, body, func(ctx context.Context, c assign.Click) (assign.Request, error) {
		return s.Engine.GetWork(ctx, name, c)
	})
}

// getNext is a click over several tasks. A token for some tasks asks for those alone.
func (s *server) getNext(w http.ResponseWriter, r *http.Request) error {
	var body struct {
		Tasks []string `json:"tasks"`
		clickBody
	}
	if err := decode(w, r, &body); err != nil {
		return err
	}
	caller := CallerOf(r)
	for _, name := range body.Tasks {
		if name != "*" && !caller.covers(name) {
			return caller.notFor(name)
		}
	}
	return s.click(w, r, body.clickBody, func(ctx context.Context, c assign.Click) (assign.Request, error) {
		c.Tasks, c.Within = body.Tasks, caller.Tasks
		return s.Engine.GetNext(ctx, c)
	})
}

// click answers a click, which get records.
func (s *server) click(w http.ResponseWriter, r *http.Request, body clickBody, get func(context.Context, assign.Click) (assign.Request, error)) error {
	c := CallerOf(r)
	if body.Lease != nil && c.Role != Agent && c.Role != Manager {
		return refuseField("lease", "only agents may ask for a lease, and your role is %s; leave it out, the task says how long work is held", c.Role)
	}
	key := r.Header.Get("Idempotency-Key")
	if len(r.Header.Values("Idempotency-Key")) > 1 {
		return refuseField("Idempotency-Key", "send one Idempotency-Key, not %d", len(r.Header.Values("Idempotency-Key")))
	}
	if !isText(key) {
		return refuseField("Idempotency-Key", "an Idempotency-Key is UTF-8 text")
	}
	ctx, cancel := context.WithTimeout(r.Context(), 20*time.Second)
	defer cancel()
	wait, asked := prefersWait(r)
	over := make(chan rights.End, 1)
	if asked { // a click may wait for seconds before it is recorded, and their rights may end meanwhile
		defer s.follow(c, func(why rights.End) {
			if why != rights.EndChanged { // hold sees that, too
				over <- why
				cancel()
			}
		})()
	}
	req, err := get(ctx, assign.Click{Holder: c.Holder, Count: body.Count, Linger: body.Linger, Lease: body.Lease,
		Key: key, Groups: c.Groups, Anything: c.Who().Anything, Program: c.Who().Program, Picks: c.Who().Picks, Credential: c.Credential, ValidUntil: c.validUntil(time.Duration(body.Linger)),
		Traceparent: traceparentOf(r)})
	select {
	case why := <-over:
		return callEndOf(why)
	default:
	}
	if err != nil {
		return err
	}
	if asked {
		held, err := s.hold(w, r, req.ID, wait, complete)
		switch {
		case err == nil:
			req = held // if holding fails, the request is recorded all the same
		case assign.IsRefusal(err, assign.Unauthenticated) || assign.IsRefusal(err, assign.Forbidden):
			return err // their rights ended meanwhile
		}
	}
	w.Header().Set("Location", "/api/v1/requests/"+strconv.FormatInt(req.ID, 10))
	status := http.StatusCreated
	if req.State == assign.Pending {
		status = http.StatusAccepted
	}
	return s.answerRequest(w, r, status, &req)
}

func complete(r *assign.Request) bool { return r.State != assign.Pending }

// prefersWait reads "Prefer: wait=N", at most 120 seconds.
func prefersWait(r *http.Request) (time.Duration, bool) {
	for value := range preferences(r, "wait") {
		n, err := strconv.ParseUint(value, 10, 64)
		if err == nil || errors.Is(err, strconv.ErrRange) { // out of range, n is the largest number
			return time.Duration(min(n, 120)) * time.Second, true
		}
	}
	return 0, false
}

// prefersMinimal reads "Prefer: return=minimal".
func prefersMinimal(r *http.Request) bool {
	for value := range preferences(r, "return") {
		if value == "minimal" {
			return true
		}
	}
	return false
}

// preferences returns the values of one of the preferences of RFC 7240.
func preferences(r *http.Request, wanted string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, header := range r.Header.Values("Prefer") {
			for preference := range strings.SplitSeq(header, ",") {
				name, value, _ := strings.Cut(preference, "=")
				value, _, _ = strings.Cut(value, ";")
				if strings.EqualFold(strings.TrimSpace(name), wanted) && !yield(strings.Trim(strings.TrimSpace(value), `"`)) {
					return
				}
			}
		}
	}
}

// hold delays the answer until the request is ready or the wait is over. If too many wait already, it answers at once:
// waiting is a preference.
func (s *server) hold(w http.ResponseWriter, r *http.Request, id int64, wait time.Duration, ready func(*assign.Request) bool) (assign.Request, error) {
	c := CallerOf(r)
	leave, err := s.stay(r)
	if err != nil {
		return s.Records.Request(r.Context(), id, c.Holder, c.Role == Manager)
	}
	defer leave()
	ctx, cancel := context.WithTimeout(r.Context(), wait)
	defer cancel()
	over := make(chan rights.End, 1)
	defer s.follow(c, func(why rights.End) { over <- why; cancel() })()
	go func() {
		select {
		case <-s.Draining:
			cancel()
		case <-ctx.Done():
		}
	}()
	w.Header().Set("Preference-Applied", fmt.Sprintf("wait=%d", int(wait.Seconds())))
	req, err := s.Feed.Await(ctx, id, c.Holder, c.Role == Manager, ready)
	select {
	case why := <-over:
		if why != rights.EndChanged {
			return req, callEndOf(why)
		}
	default:
	}
	if req.State == assign.Cancelled && s.Rights != nil && c.Rights != nil { // perhaps by the end of their rights, which the watch has not seen yet
		if why, err := s.Rights.Ended(r.Context(), c.Rights.Credential); err != nil || why != "" {
			return req, cmp.Or[error](err, callEndOf(why))
		}
	}
	if err != nil && ctx.Err() != nil { // the wait was over before the first read
		return s.Records.Request(r.Context(), id, c.Holder, c.Role == Manager)
	}
	return req, err
}

// answerRequest writes a request: without the details of its work, if there is no room for them, since what it got is the caller's by
// now. A pending one says when to ask again: 5, 10, then every 20 s, by its age.
func (s *server) answerRequest(w http.ResponseWriter, r *http.Request, status int, req *assign.Request) error {
	if !s.fits(r, assign.SizeOf(req.Work, 1)) {
		*req = req.WithoutDetails()
	}
	tag, body := requestTag(r, req)
	w.Header().Set("ETag", tag)
	retryAfter(w, req)
	answerJSON(w, status, body)
	return nil
}

func retryAfter(w http.ResponseWriter, r *assign.Request) {
	if r.State != assign.Pending {
		return
	}
	after := "20"
	switch {
	case r.Age < 5*time.Second:
		after = "5"
	case r.Age < 15*time.Second:
		after = "10"
	}
	w.Header().Set("Retry-After", after)
}

// requestTag returns a tag of everything but eta_seconds, position, asking, and whether its work is about to expire. body is the whole
// request as the caller may read it, which for most requests is what the tag was made from.
func requestTag(r *http.Request, req *assign.Request) (tag string, body []byte) {
	shown := *req
	if !CallerOf(r).Who().MayReadQueries() {
		shown = req.Withheld()
	}
	body = shown.AppendJSON(make([]byte, 0, assign.SizeOf(shown.Work, 1)))
	if shown.EtaSeconds == nil && shown.Position == nil && shown.Asking == nil && !slices.ContainsFunc(shown.Work, expiring) {
		return tagOf(body), body
	}
	shown.EtaSeconds, shown.Position, shown.Asking, shown.Work = nil, nil, nil, still(shown.Work)
	return tagOf(shown.AppendJSON(make([]byte, 0, len(body)))), body
}

func expiring(w assign.Work) bool { return w.Expiring }

// still returns work without whether it is about to expire. Other connections share the original.
func still(work []assign.Work) []assign.Work {
	work = slices.Clone(work)
	for i := range work {
		work[i].Expiring = false
	}
	return work
}

// matches reports whether the caller has the present state.
func matches(r *http.Request, tag string) bool {
	for _, header := range r.Header.Values("If-None-Match") {
		for candidate := range strings.SplitSeq(header, ",") {
			candidate = strings.TrimPrefix(strings.TrimSpace(candidate), "W/")
			if candidate == tag || candidate == "*" {
				return true
			}
		}
	}
	return false
}

// showRequest answers with a request. With Prefer: wait it holds the answer until the request differs from what
// If-None-Match names, or, without that header, until it is complete.
func (s *server) showRequest(w http.ResponseWriter, r *http.Request) error {
	id, err := number(r, "id")
	if err != nil {
		return err
	}
	c := CallerOf(r)
	var req assign.Request
	if wait, asked := prefersWait(r); asked {
		ready := complete
		if r.Header.Get("If-None-Match") != "" {
			ready = func(req *assign.Request) bool {
				tag, _ := requestTag(r, req)
				return !matches(r, tag)
			}
		}
		req, err = s.hold(w, r, id, wait, ready)
	} else {
		req, err = s.Records.Request(r.Context(), id, c.Holder, c.Role == Manager)
	}
	if err != nil {
		return err
	}
	if err := s.fit(r, assign.SizeOf(req.Work, 1)); err != nil {
		return err
	}
	tag, body := requestTag(r, &req)
	w.Header().Set("ETag", tag)
	retryAfter(w, &req)
	if matches(r, tag) {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	answerJSON(w, http.StatusOK, body)
	return nil
}

// listRequests answers with waiting requests, oldest first.
func (s *server) listRequests(w http.ResponseWriter, r *http.Request) error {
	v, err := parameters(r)
	if err != nil {
		return err
	}
	after, limit, err := readCursor(r)
	if err != nil {
		return err
	}
	requests, more, err := readPage(limit, func(limit int) ([]assign.Request, error) {
		return s.Records.Waiting(r.Context(), v.Get("task"), after, limit)
	})
	if err != nil {
		return err
	}
	return answerPage(w, "requests", requests, more, func(req assign.Request) int64 { return req.ID })
}

func (s *server) cancelRequest(w http.ResponseWriter, r *http.Request) error {
	id, err := number(r, "id")
	if err != nil {
		return err
	}
	c := CallerOf(r)
	req, err := s.Engine.Cancel(r.Context(), id, c.Holder, c.Role == Manager)
	if err != nil {
		return err
	}
	return s.answerRequest(w, r, http.StatusOK, &req)
}

// pipeline answers with the caller's work and waiting requests; a manager may ask for another user's.
func (s *server) pipeline(w http.ResponseWriter, r *http.Request) error {
	c := CallerOf(r)
	v, err := parameters(r)
	if err != nil {
		return err
	}
	var p assign.Pipeline
	switch user := v.Get("user"); {
	case user == "" || user == c.Holder.User && c.Role != Manager:
		p, err = s.Records.Pipeline(r.Context(), c.Holder)
	case c.Role != Manager:
		err = assign.Refuse(assign.Forbidden, "only a manager may see somebody else's pipeline")
	default:
		p, err = s.userPipeline(r.Context(), user, c)
	}
	if err != nil {
		return err
	}
	if p = c.narrow(p); !c.Who().MayReadQueries() {
		p = p.Withheld()
	}
	if err := s.fit(r, assign.SizeOf(p.Work, len(p.Requests))); err != nil {
		return err
	}
	answerPipeline(w, r, p)
	return nil
}

// answerPipeline writes a pipeline, unless the caller has its present state.
func answerPipeline(w http.ResponseWriter, r *http.Request, p assign.Pipeline) {
	tag, body := pipelineTag(p)
	w.Header().Set("ETag", tag)
	if matches(r, tag) {
		w.Header().Set("Cache-Control", "no-store")
		w.WriteHeader(http.StatusNotModified)
		return
	}
	answerJSON(w, http.StatusOK, body)
}

// userPipeline reads what a user and all instances of that user hold and wait for. If that is somebody else than the caller,
// the audit says first that they looked, once an hour.
func (s *server) userPipeline(ctx context.Context, user string, c *Caller) (p assign.Pipeline, err error) {
	if err := assign.CheckUser(user); err != nil {
		return p, err
	}
	if user != c.Holder.User {
		if err := s.Audit.WriteHourly(ctx, audit.Act{Act: "pipeline.read", Object: user}); err != nil {
			return p, err
		}
	}
	return s.Records.UserPipeline(ctx, user)
}

// pipelineTag returns a tag of everything but what changes with time, and the whole body, like requestTag.
func pipelineTag(p assign.Pipeline) (tag string, body []byte) {
	body = p.AppendJSON(make([]byte, 0, assign.SizeOf(p.Work, len(p.Requests))))
	changes := func(req assign.Request) bool {
		return req.EtaSeconds != nil || req.Position != nil || req.Asking != nil
	}
	if !slices.ContainsFunc(p.Work, expiring) && !slices.ContainsFunc(p.Requests, changes) {
		return tagOf(body), body
	}
	p.Work, p.Requests = still(p.Work), slices.Clone(p.Requests)
	for i := range p.Requests {
		p.Requests[i].EtaSeconds, p.Requests[i].Position, p.Requests[i].Asking = nil, nil, nil
	}
	return tagOf(p.AppendJSON(make([]byte, 0, len(body)))), body
}

// tagOf returns a strong tag of b.
func tagOf(b []byte) string {
	sum := sha256.Sum256(b)
	const kept = 12 // bytes, which no two states share by chance
	var tag [2*kept + 2]byte
	tag[0], tag[len(tag)-1] = '"', '"'
	hex.Encode(tag[1:], sum[:kept])
	return string(tag[:])
}
