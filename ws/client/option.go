package client

import (
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// call is one call of the API.
type call struct {
	method string
	path   string // escaped, such as /api/v1/tasks
	query  url.Values
	body   any // sent as JSON; nil: none
	header http.Header

	safe   bool          // it changes nothing when it is repeated
	within time.Duration // how long one try may take, the answer read; 0: until the context ends
	hold   time.Duration // for how much longer the node was asked to hold its answer
	pause  time.Duration // the longest between two tries; 0: as Retry says
	answer *Answer
}

// answerWithin is how long one try may take unless [Within] says otherwise. Calls for which the server may have to execute
// a task's query take as long as the task allows, so only their context bounds them.
const answerWithin = 30 * time.Second

// Option adds to one call.
type Option func(*call)

// Header adds a header.
func Header(name, value string) Option { return func(c *call) { c.header.Set(name, value) } }

// Wait has the node hold its answer while a request is pending, for so long at most, in whole seconds. Nodes take more
// than 120 s for 120 s, and may answer sooner.
func Wait(d time.Duration) Option {
	return func(c *call) {
		if seconds := int(d / time.Second); seconds > 0 {
			c.header.Set("Prefer", "wait="+strconv.Itoa(seconds))
			c.hold = d
		}
	}
}

// Key is an Idempotency-Key: any text of 1 to 255 bytes, new for each request that is meant to be another one. The same
// key again is answered with the same request. Empty: the call has none.
func Key(key string) Option {
	return func(c *call) {
		c.header.Del(keyHeader)
		if c.safe = key != ""; c.safe {
			c.header.Set(keyHeader, key)
		}
	}
}

const keyHeader = "Idempotency-Key"

// IfMatch has a change refused with a status of 412 when the task is not any more what was read under that tag, see
// [Answer.Tag]. "*" means whatever it is now.
func IfMatch(tag string) Option { return Header("If-Match", tag) }

// IfNoneMatch has a read fail with [ErrNotModified] when what it reads is still what that tag stands for.
func IfNoneMatch(tag string) Option { return Header("If-None-Match", tag) }

// Within bounds one try, beside what [Wait] adds; 0: only the context does. Unless it is given most calls may take 30 s.
func Within(d time.Duration) Option { return func(c *call) { c.within = d } }

// MaxPause bounds the pause before a call is repeated. What the server's Retry-After says counts even so.
func MaxPause(d time.Duration) Option { return func(c *call) { c.pause = d } }

// Into keeps the last answer, be it a refusal. It is left alone when none came.
func Into(a *Answer) Option { return func(c *call) { c.answer = a } }

// Answer is what came back over HTTP, beside what a method returns.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte        // as it came
	Sent   time.Time     // when the try was sent that was answered so
	Took   time.Duration // from then until all of it was read
}

// Tag is the ETag of what was answered; empty: it has none.
func (a *Answer) Tag() string { return a.Header.Get("ETag") }

// RetryAfter is when the server asks to be asked again; 0: it does not say.
func (a *Answer) RetryAfter() time.Duration { return retryAfter(a.Header) }

// retryAfter reads seconds or a date (RFC 9110, 10.2.3).
func retryAfter(h http.Header) time.Duration {
	text := h.Get("Retry-After")
	if seconds, err := strconv.ParseUint(text, 10, 16); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(time.Until(at), 0)
	}
	return 0
}
