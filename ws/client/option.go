package client

import (
	"errors"
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
	body   any // sent as JSON; nil for none
	header http.Header

	raw    bool          // the answer's content is the caller's business
	safe   bool          // a repetition changes nothing
	within time.Duration // how long one try may take, including the answer; 0 means until the context ends
	hold   time.Duration // how much longer the node may hold its answer
	pause  time.Duration // the longest between two tries; 0 means Retry's
	heed   time.Duration // the longest Retry-After that counts; 0 means any
	answer *Answer
}

// answerWithin is how long one try may take unless [Within] says otherwise. Only the context bounds calls for which the server
// may have to execute a task's query: they take as long as the task allows.
const answerWithin = 30 * time.Second

// releaseWithin is the same for a release: a node takes up to two minutes for very much work.
const releaseWithin = 150 * time.Second

// Option extends one call.
type Option func(*call)

// Header adds a header.
func Header(name, value string) Option { return func(c *call) { c.header.Set(name, value) } }

// Brief leaves the work out of the results of [Client.DisposeMany], which makes the call cheaper. Older nodes answer with it.
func Brief() Option { return Header("Prefer", "return=minimal") }

// Wait makes the node hold its answer while a request is pending, for at most d, in whole seconds. Nodes limit it to 120 s, and
// may answer sooner.
func Wait(d time.Duration) Option {
	return func(c *call) {
		if seconds := int(d / time.Second); seconds > 0 {
			c.header.Set("Prefer", "wait="+strconv.Itoa(seconds))
			c.hold = d
		}
	}
}

// Key sends an Idempotency-Key: any text of 1 to 255 bytes, new for each new request. The same key again is answered with the
// same request. With an empty key the call has none.
func Key(key string) Option {
	return func(c *call) {
		c.header.Del(keyHeader)
		if c.safe = key != ""; c.safe {
			c.header.Set(keyHeader, key)
		}
	}
}

const keyHeader = "Idempotency-Key"

// IfMatch makes the server refuse a change with status 412 if the task has changed since it was read under that tag, see
// [Answer.Tag]. "*" matches any version.
func IfMatch(tag string) Option { return Header("If-Match", tag) }

// IfNoneMatch makes a read fail with [ErrNotModified] if the answer still has that tag.
func IfNoneMatch(tag string) Option { return Header("If-None-Match", tag) }

// Within bounds one try; [Wait] adds to it. With 0 only the context bounds it. The default of most calls is 30 s.
func Within(d time.Duration) Option { return func(c *call) { c.within = d } }

// MaxPause bounds the pause before a call is repeated. A longer Retry-After of the server still applies, see [MaxRetryAfter].
func MaxPause(d time.Duration) Option { return func(c *call) { c.pause = d } }

// MaxRetryAfter bounds the pause for which a server may ask with Retry-After, for calls that are of no use later.
func MaxRetryAfter(d time.Duration) Option { return func(c *call) { c.heed = d } }

// Into stores the last answer in a, also if it is a refusal. It leaves a unchanged if no answer came.
func Into(a *Answer) Option { return func(c *call) { c.answer = a } }

// Answer is the HTTP answer to a call, in addition to the method's results.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte        // undecoded
	Sent   time.Time     // when the answered try was sent
	Took   time.Duration // from then until the whole answer was read
}

// Tag returns the answer's ETag, or "" if it has none.
func (a *Answer) Tag() string { return a.Header.Get("ETag") }

// RetryAfter returns the answer's Retry-After, at most 24 h, or 0 if it has none.
func (a *Answer) RetryAfter() time.Duration { return retryAfter(a.Header) }

// longestRetryAfter bounds what a server may ask for: anything longer counts as this.
const longestRetryAfter = 24 * time.Hour

// retryAfter reads seconds or a date (RFC 9110, 10.2.3).
func retryAfter(h http.Header) time.Duration {
	text := h.Get("Retry-After")
	if seconds, err := strconv.ParseUint(text, 10, 64); err == nil || errors.Is(err, strconv.ErrRange) {
		return time.Duration(min(seconds, uint64(longestRetryAfter/time.Second))) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return min(max(time.Until(at), 0), longestRetryAfter)
	}
	return 0
}
