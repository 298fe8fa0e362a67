package otlp

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"getwork/cmd/internal/otlp/otlptest"
	"getwork/schema/schematest/logs"
	"getwork/schema/schematest/timeout"
)

// The SDK reads the environment of the process, and has global handlers of errors. So these tests run one after another.

// start starts a sender with these variables, as NAME=value.
func start(t *testing.T, log *logs.Buffer, variables ...string) (*Sender, error) {
	t.Helper()
	for _, v := range variables {
		name, value, _ := strings.Cut(v, "=")
		t.Setenv(name, value)
	}
	return Start(t.Context(), Node{ID: "n1", Version: "v9"}, slog.New(slog.NewTextHandler(log, nil)))
}

// one makes a span and sends it.
func one(s *Sender, name string) {
	_, span := s.Tracer().Start(context.Background(), name)
	span.End()
}

// Tracing is off unless a variable names a collector, and it can be switched off beside that.
func TestOff(t *testing.T) {
	c := otlptest.Start(t)
	for _, variables := range [][]string{
		{},
		{"OTEL_SERVICE_NAME=desk"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=" + c.URL, "OTEL_SDK_DISABLED=true"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=" + c.URL, "OTEL_TRACES_EXPORTER=none"},
	} {
		t.Run(fmt.Sprint(variables), func(t *testing.T) {
			var log logs.Buffer
			if s, err := start(t, &log, variables...); s != nil || err != nil || log.String() != "" {
				t.Errorf("%v, %v, %s", s, err, log.String())
			}
		})
	}
	if c.Calls() != 0 {
		t.Errorf("%d calls", c.Calls())
	}
}

// What the node can't do is refused at the start, and the error says what to set, but not what is secret.
func TestRefused(t *testing.T) {
	const secret = "hunter2"
	for variable, want := range map[string]string{
		"OTEL_EXPORTER_OTLP_PROTOCOL=grpc":                                        "OTEL_EXPORTER_OTLP_PROTOCOL is \"grpc\"; getwork speaks http/protobuf alone, so set it to that",
		"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=http/json":                            "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL is \"http/json\"",
		"OTEL_TRACES_EXPORTER=zipkin":                                             "OTEL_TRACES_EXPORTER is \"zipkin\"; getwork sends traces by otlp alone",
		"OTEL_EXPORTER_OTLP_ENDPOINT=collector:4318":                              "OTEL_EXPORTER_OTLP_ENDPOINT must be a URL such as http://127.0.0.1:4318",
		"OTEL_EXPORTER_OTLP_ENDPOINT=http://desk:" + secret + "@collector":        "without a user or a password",
		"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://:" + secret + "\x7f@collector": "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT must be a URL",
		"OTEL_TRACES_SAMPLER=sometimes":                                           "unsupported sampler: sometimes",
		"OTEL_EXPORTER_OTLP_HEADERS=" + secret:                                    "parse headers",
		"OTEL_EXPORTER_OTLP_HEADERS=authorization=Bearer " + secret + "%zz":       "escape header value",
		"OTEL_RESOURCE_ATTRIBUTES=production":                                     "OTEL_RESOURCE_ATTRIBUTES is a list such as",
		"OTEL_EXPORTER_OTLP_CERTIFICATE=/nowhere":                                 "read tls ca cert file",
	} {
		t.Run(variable, func(t *testing.T) {
			var log logs.Buffer
			s, err := start(t, &log, "OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1", variable)
			if s != nil || err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %s", err, want)
			}
			if text := fmt.Sprint(err, log.String()); strings.Contains(text, secret) {
				t.Errorf("the secret is in %s", text)
			}
		})
	}
}

// Spans say which node of which service made them. The service is called getwork unless the environment says another name.
func TestSent(t *testing.T) {
	for _, c := range []struct{ variable, want string }{
		{"OTEL_SERVICE_NAME=", "getwork"},
		{"OTEL_SERVICE_NAME=desk", "desk"},
		{"OTEL_RESOURCE_ATTRIBUTES=service.name=floor,team=loans", "floor"},
	} {
		t.Run(c.want, func(t *testing.T) {
			to := otlptest.Start(t)
			var log logs.Buffer
			s, err := start(t, &log, "OTEL_EXPORTER_OTLP_ENDPOINT="+to.URL, "OTEL_EXPORTER_OTLP_HEADERS=authorization=Bearer%20hunter2", c.variable)
			if err != nil {
				t.Fatal(err)
			}
			to.Refuse = func(_ http.ResponseWriter, r *http.Request) bool {
				if got := r.Header.Get("Authorization"); got != "Bearer hunter2" {
					t.Errorf("Authorization: %s", got)
				}
				return false
			}
			one(s, "first")
			s.Close(t.Context())
			spans := to.Spans("first", "", "")
			if len(spans) != 1 || spans[0].Resource["service.name"] != c.want || spans[0].Node != "n1" || spans[0].Resource["service.version"] != "v9" {
				t.Errorf("%+v", spans)
			}
			if strings.Contains(log.String(), "hunter2") || strings.Contains(log.String(), "WARN") {
				t.Error(log.String())
			}
		})
	}
}

// A collector that refuses is logged once in a while, without what it repeats of the headers.
func TestCollectorRefuses(t *testing.T) {
	to := otlptest.Start(t)
	to.Refuse = func(w http.ResponseWriter, r *http.Request) bool {
		w.WriteHeader(http.StatusForbidden)
		_, _ = fmt.Fprintf(w, "not %s, %s", r.Header.Get("Authorization"), strings.Repeat("and not now ", 1000))
		return true
	}
	var log logs.Buffer
	s, err := start(t, &log, "OTEL_EXPORTER_OTLP_ENDPOINT="+to.URL, "OTEL_EXPORTER_OTLP_HEADERS=authorization=Bearer%20hunter2", "OTEL_BSP_SCHEDULE_DELAY=10")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		one(s, "first")
		timeout.Await(t, "the collector refuses", func() bool { return to.Calls() > i })
	}
	s.Close(t.Context())
	text := log.String()
	if strings.Count(text, "spans can't be sent") != 1 || !strings.Contains(text, "403 Forbidden") || strings.Contains(text, "hunter2") || len(text) > 1000 {
		t.Error(text)
	}
}

// A collector that does not answer delays neither those who make spans nor the end.
func TestCollectorIsSilent(t *testing.T) {
	to := otlptest.Start(t)
	silent, end := context.WithCancel(t.Context())
	defer end()
	to.Refuse = func(_ http.ResponseWriter, r *http.Request) bool {
		select {
		case <-silent.Done():
		case <-r.Context().Done():
		}
		return true
	}
	var log logs.Buffer
	s, err := start(t, &log, "OTEL_EXPORTER_OTLP_ENDPOINT="+to.URL, "OTEL_BSP_SCHEDULE_DELAY=10")
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	for range 20_000 { // ten times what the queue takes
		one(s, "first")
	}
	made := time.Since(began)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	s.Close(ctx)
	if took := time.Since(began); took > timeout.Scale(10*time.Second) {
		t.Errorf("20,000 spans took %v, and the end %v", made, took-made)
	}
	if !strings.Contains(log.String(), "send the last spans") {
		t.Error(log.String())
	}
}
