// Package otlptest is a collector for tests: it takes spans by OTLP over HTTP, as others do.
package otlptest

import (
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	traces "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// Span is a span that was received. Ids are in hexadecimal.
type Span struct {
	Name              string
	Trace, ID, Parent string
	Server            bool              // it answers a call
	Node              string            // service.instance.id
	Links             []string          // spans
	Facts             map[string]string // attributes
	Resource          map[string]string // attributes of the node
}

// Collector is a collector.
type Collector struct {
	URL string

	// Refuse, if it returns true, has answered a call in the collector's place.
	Refuse func(w http.ResponseWriter, r *http.Request) bool

	mu     sync.Mutex
	calls  int
	bodies [][]byte
	spans  []Span
	faults []error
}

// Start starts a collector, and ends it with the test.
func Start(t testing.TB) *Collector {
	t.Helper()
	c := &Collector{}
	server := httptest.NewServer(c)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		for _, err := range c.faults {
			t.Error(err)
		}
	})
	c.URL = server.URL
	return c
}

// ServeHTTP takes spans.
func (c *Collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls++
	if c.Refuse != nil && c.Refuse(w, r) {
		return
	}
	var request collector.ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(body, &request)
	}
	if kind := r.Header.Get("Content-Type"); err != nil || r.URL.Path != "/v1/traces" || kind != "application/x-protobuf" {
		c.faults = append(c.faults, fmt.Errorf("a call of %s with %s: %w", r.URL.Path, kind, err))
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	c.bodies = append(c.bodies, body)
	for _, of := range request.ResourceSpans {
		for _, by := range of.ScopeSpans {
			for _, s := range by.Spans {
				c.spans = append(c.spans, spanOf(s, of.GetResource().GetAttributes()))
			}
		}
	}
	w.Header().Set("Content-Type", "application/x-protobuf") // an empty message: all were taken
}

func spanOf(s *traces.Span, resource []*common.KeyValue) Span {
	is := Span{Name: s.Name, Trace: hex.EncodeToString(s.TraceId), ID: hex.EncodeToString(s.SpanId), Parent: hex.EncodeToString(s.ParentSpanId),
		Server: s.Kind == traces.Span_SPAN_KIND_SERVER, Facts: factsOf(s.Attributes), Resource: factsOf(resource)}
	is.Node = is.Resource["service.instance.id"]
	for _, l := range s.Links {
		is.Links = append(is.Links, hex.EncodeToString(l.SpanId))
	}
	return is
}

func factsOf(attributes []*common.KeyValue) map[string]string {
	facts := map[string]string{}
	for _, a := range attributes {
		switch v := a.GetValue().GetValue().(type) {
		case *common.AnyValue_StringValue:
			facts[a.Key] = v.StringValue
		case *common.AnyValue_IntValue:
			facts[a.Key] = strconv.FormatInt(v.IntValue, 10)
		}
	}
	return facts
}

// Spans returns the spans that were received and that have this name and this attribute; an empty key: whatever their attributes are.
func (c *Collector) Spans(name, key, value string) (found []Span) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.spans {
		if s.Name == name && (key == "" || s.Facts[key] == value) {
			found = append(found, s)
		}
	}
	return found
}

// All returns all that was received: spans, and calls as they were sent.
func (c *Collector) All() (spans []Span, bodies [][]byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.spans), slices.Clone(c.bodies)
}

// Calls returns how often somebody has called, whatever was answered.
func (c *Collector) Calls() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls
}
