package hook

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	postWithin = 10 * time.Second // for one attempt, from the look-up of the name to the end of the answer
	readMost   = 64 << 10         // of an answer's body, which is thrown away, so that the connection can be used again
)

// client posts to receivers: plain to URLs with http, which may reach less (checkAddress), secure to all others.
type client struct{ plain, secure *http.Client }

func newClient(allow []netip.Prefix) client {
	one := func(plain bool) *http.Client {
		dialer := &net.Dialer{Timeout: postWithin / 2, Control: func(_, address string, _ syscall.RawConn) error {
			// The address that is about to be connected to: whatever a name was resolved to before, this is it now.
			to, err := netip.ParseAddrPort(address)
			if err != nil {
				return fmt.Errorf("refused: %q is no address", address)
			}
			return checkAddress(allow, to.Addr(), plain)
		}}
		return &http.Client{
			Timeout: postWithin,
			// No proxy: it would dial in the node's place, unchecked.
			Transport: &http.Transport{DialContext: dialer.DialContext, TLSHandshakeTimeout: postWithin / 2, MaxIdleConnsPerHost: perHook, IdleConnTimeout: time.Minute, MaxResponseHeaderBytes: 16 << 10, ForceAttemptHTTP2: true,
				// Without pings each attempt would go into the same connection, also if its other end has vanished.
				HTTP2: &http.HTTP2Config{SendPingTimeout: postWithin / 4, PingTimeout: postWithin / 4}},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
	}
	return client{plain: one(true), secure: one(false)}
}

// result is how an attempt ended.
type result struct {
	status     int           // 0: there was no answer
	failed     string        // empty: it was delivered
	retryAfter time.Duration // the receiver asks to be left alone for so long
}

// post makes one attempt. It needs no transaction and no connection of the database.
func (c client) post(ctx context.Context, e event) result {
	at := time.Now()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url, bytes.NewReader(e.body))
	if err != nil {
		return result{failed: "the URL can't be used"}
	}
	id := e.messageID()
	r.Header = http.Header{"Content-Type": {"application/json"}, "User-Agent": {"getwork"}, "Webhook-Id": {id},
		"Webhook-Timestamp": {strconv.FormatInt(at.Unix(), 10)}, "Webhook-Signature": {sign(id, at, e.body, e.secret, e.former)}}
	by := c.secure
	if r.URL.Scheme == "http" {
		by = c.plain
	}
	answer, err := by.Do(r)
	if err != nil {
		return result{failed: reason(err)}
	}
	_, _ = io.CopyN(io.Discard, answer.Body, readMost)
	_ = answer.Body.Close()
	got := result{status: answer.StatusCode}
	if got.status/100 == 2 {
		return got
	}
	got.failed = fmt.Sprintf("answered %d", got.status)
	if got.status/100 == 3 {
		got.failed += ": redirects are not followed; give the final URL"
	}
	if got.status == http.StatusTooManyRequests || got.status == http.StatusServiceUnavailable {
		got.retryAfter = retryAfter(answer.Header.Get("Retry-After"))
	}
	return got
}

const longestRetryAfter = time.Hour

// retryAfter reads seconds or a date (RFC 9110, 10.2.3).
func retryAfter(text string) time.Duration {
	if seconds, err := strconv.ParseUint(text, 10, 64); err == nil || errors.Is(err, strconv.ErrRange) {
		return time.Duration(min(seconds, uint64(longestRetryAfter/time.Second))) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return min(max(time.Until(at), 0), longestRetryAfter)
	}
	return 0
}

// reason describes why there was no answer, without the URL, which may have a secret in it.
func reason(err error) string {
	var about *url.Error
	if errors.As(err, &about) {
		err = about.Err
	}
	var dns *net.DNSError
	switch {
	case errors.As(err, &dns):
		return "the host's name can't be resolved"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled), isTimeout(err):
		return fmt.Sprintf("no answer within %s", postWithin)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "the connection was closed without an answer"
	case !ofConnection(err):
		return "the answer is not valid HTTP"
	}
	text := err.Error()
	if len(text) > 300 {
		text = text[:300]
	}
	return strings.ReplaceAll(strings.ToValidUTF8(text, "?"), "\x00", "?") // PostgreSQL stores nothing else
}

// ofConnection reports whether an error is about the connection or TLS. The text of any other may quote what was answered.
func ofConnection(err error) bool {
	var op *net.OpError
	var certificate *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	return errors.As(err, &op) || errors.As(err, &certificate) || errors.As(err, &record) || errors.Is(err, http.ErrSchemeMismatch)
}

func isTimeout(err error) bool {
	var n net.Error
	return errors.As(err, &n) && n.Timeout()
}
