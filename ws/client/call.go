package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"getwork/assign"
)

// maxAnswer is the most bytes that a program reads, in case its URL is wrong.
const maxAnswer = 256 << 20

// Do makes a call that has no method here. path is escaped and begins with a slash, such as /api/v1/tasks. body is sent as
// JSON unless it is nil, and the answer is decoded into v unless v is nil: then any 2xx will do. The call counts as safe to repeat if the method is
// GET, or if there is a [Key].
func (c *Client) Do(ctx context.Context, method, path string, body, v any, options ...Option) error {
	return c.do(ctx, call{method: method, path: path, body: body, within: answerWithin, raw: v == nil}, v, options)
}

// get reads something below /api/v1.
func (c *Client) get(ctx context.Context, path string, query url.Values, v any, options []Option) error {
	return c.do(ctx, call{method: http.MethodGet, path: api + path, query: query, within: answerWithin}, v, options)
}

// send makes a call below /api/v1 that must not be repeated.
func (c *Client) send(ctx context.Context, method, path string, body, v any, options []Option) error {
	return c.do(ctx, call{method: method, path: api + path, body: body, within: answerWithin}, v, options)
}

// sendSafe makes a call below /api/v1 that may be repeated.
func (c *Client) sendSafe(ctx context.Context, method, path string, body, v any, options []Option) error {
	return c.do(ctx, call{method: method, path: api + path, body: body, within: answerWithin, safe: true}, v, options)
}

const api = "/api/v1"

// path returns an address below /api/v1; each part becomes one segment.
func path(parts ...string) string {
	var b strings.Builder
	for _, part := range parts {
		b.WriteString("/" + url.PathEscape(part))
	}
	return b.String()
}

// try makes a call once.
func (c *Client) try(ctx context.Context, what *call, v any) error {
	if what.within > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, what.within+what.hold)
		defer cancel()
	}
	request, err := c.request(ctx, what)
	if err != nil {
		return err
	}
	sent := time.Now()
	response, err := c.http().Do(request)
	if err != nil {
		return noAnswer(c.base(), err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return noAnswer(c.base(), err)
	}
	if what.answer != nil {
		*what.answer = Answer{response.StatusCode, response.Header, body, sent, time.Since(sent)}
	}
	switch {
	case response.StatusCode == http.StatusNotModified:
		return ErrNotModified
	case response.StatusCode/100 != 2:
		return c.refusal(response, body)
	case what.raw:
		return nil
	}
	if err := decode(response, body, v); err != nil {
		return &Foreign{URL: c.base(), Err: err}
	}
	return nil
}

// decode reads an answer into v, or checks that it has no content if v is nil. A program believes that it is rid of its work when
// [Client.Dispose] succeeds, so JSON of something else must not pass for work.
func decode(r *http.Response, body []byte, v any) error {
	if v == nil {
		if r.StatusCode != http.StatusNoContent {
			return fmt.Errorf("it answered %q where nothing comes", r.Status)
		}
		return nil
	}
	if err := json.Unmarshal(body, v); err != nil {
		return err
	}
	id := int64(1)
	switch v := v.(type) {
	case *assign.Work:
		id = v.ID
	case *assign.Request:
		id = v.ID
	case *results:
		return v.check()
	}
	if id == 0 {
		return errors.New("it has no id")
	}
	return nil
}

func (c *Client) request(ctx context.Context, what *call) (*http.Request, error) {
	var body io.Reader
	if what.body != nil {
		b, err := json.Marshal(what.body)
		if err != nil {
			return nil, fmt.Errorf("encode the call: %w", err)
		}
		body = bytes.NewReader(b)
	}
	if err := checkURL(c.URL); err != nil {
		return nil, err
	}
	address := c.base() + what.path
	if len(what.query) > 0 {
		address += "?" + what.query.Encode()
	}
	r, err := http.NewRequestWithContext(ctx, what.method, address, body)
	if err != nil {
		return nil, fmt.Errorf("make the call: %w", err)
	}
	r.Header = c.header()
	r.Header.Set("Accept", "application/json")
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	for name, values := range what.header {
		r.Header[name] = values
	}
	return r, checkHeader(r.Header)
}
