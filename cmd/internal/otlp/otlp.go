// Package otlp sends a node's spans to an OpenTelemetry collector, by OTLP over HTTP. It is the only package that links OpenTelemetry's
// SDK and exporter. The standard variables of the environment configure it, and it is off without one that names a collector.
package otlp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"sync"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"getwork/assign/pg"
)

// Node is what the spans say of the node that made them.
type Node struct{ ID, Version string }

// Sender sends spans in the background. If the collector is away or slow, spans are lost, and nobody waits.
type Sender struct{ provider *sdktrace.TracerProvider }

// Start returns a sender; nil: no variable names a collector, or tracing is switched off. Its error says which variable is wrong, and
// never what is in OTEL_EXPORTER_OTLP_HEADERS. It sets OpenTelemetry's global handlers of errors, so a process has one sender.
func Start(ctx context.Context, n Node, log *slog.Logger) (*Sender, error) {
	endpoint, err := collector()
	if err != nil || endpoint == "" {
		return nil, err
	}
	f := &faults{log: log, secrets: secrets()}
	otel.SetErrorHandler(f)
	otel.SetLogger(logr.New(quiet{f}))
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("the variables OTEL_EXPORTER_OTLP_…: %w", f.redacted(err))
	}
	about, err := resource.New(ctx, resource.WithTelemetrySDK(), resource.WithAttributes(semconv.ServiceName("getwork"),
		semconv.ServiceVersion(n.Version), semconv.ServiceInstanceID(n.ID)), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES is a list such as deployment.environment.name=production,team=desk: %w", f.redacted(err))
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(about))
	if err := f.started(); err != nil {
		return nil, fmt.Errorf("one of the variables OTEL_… is wrong: %w", err)
	}
	log.Info("spans are sent to a collector", "url", endpoint)
	return &Sender{provider}, nil
}

// Tracer returns what makes spans.
func (s *Sender) Tracer() trace.Tracer {
	return s.provider.Tracer("getwork", trace.WithSchemaURL(semconv.SchemaURL))
}

// Close sends what is left, and returns when that is done or ctx ends.
func (s *Sender) Close(ctx context.Context) {
	if err := s.provider.Shutdown(ctx); err != nil {
		otel.Handle(fmt.Errorf("send the last spans: %w", err))
	}
}

// of returns the value of the first of these variables that is not empty, and its name.
func of(names ...string) (name, value string) {
	for _, name := range names {
		if value := strings.TrimSpace(os.Getenv(name)); value != "" {
			return name, value
		}
	}
	return "", ""
}

// collector returns the URL that the environment names; empty: tracing is off.
func collector() (string, error) {
	name, endpoint := of("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
	_, disabled := of("OTEL_SDK_DISABLED")
	_, exporter := of("OTEL_TRACES_EXPORTER")
	if endpoint == "" || strings.EqualFold(disabled, "true") || exporter == "none" {
		return "", nil
	}
	if exporter != "" && exporter != "otlp" {
		return "", fmt.Errorf("OTEL_TRACES_EXPORTER is %q; getwork sends traces by otlp alone, so set it to otlp, or to none to send none", exporter)
	}
	if name, protocol := of("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"); protocol != "" && protocol != "http/protobuf" {
		return "", fmt.Errorf("%s is %q; getwork speaks http/protobuf alone, so set it to that, and the endpoint to the collector's port for it (usually 4318)", name, protocol)
	}
	to, err := url.Parse(endpoint)
	if err != nil || to.Scheme != "http" && to.Scheme != "https" || to.Host == "" || to.User != nil {
		return "", fmt.Errorf("%s must be a URL such as http://127.0.0.1:4318, without a user or a password; what the collector asks for goes to OTEL_EXPORTER_OTLP_HEADERS", name)
	}
	return to.Scheme + "://" + to.Host, nil
}

// secrets returns the values of the headers that are sent to the collector.
func secrets() (values []string) {
	for _, name := range []string{"OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"} {
		for pair := range strings.SplitSeq(os.Getenv(name), ",") {
			_, value, _ := strings.Cut(pair, "=")
			value = strings.TrimSpace(value)
			values = append(values, value)
			if decoded, err := url.PathUnescape(value); err == nil {
				values = append(values, decoded)
			}
		}
	}
	return values
}

// faults gets OpenTelemetry's errors. Those of the start are kept, and refuse it; later ones go to the log.
type faults struct {
	log     *slog.Logger
	secrets []string
	limit   pg.LogLimiter

	mu      sync.Mutex
	running bool
	first   error
}

// started returns the error of the start, if there was one.
func (f *faults) started() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.running = true
	return f.first
}

// Handle implements [otel.ErrorHandler].
func (f *faults) Handle(err error) {
	err = f.redacted(err)
	f.mu.Lock()
	running := f.running
	if !running {
		f.first = errors.Join(f.first, err)
	}
	f.mu.Unlock()
	if !running {
		return
	}
	if facts := f.limit.Again("send spans", err); facts != nil {
		f.log.Warn("spans can't be sent and are lost; nothing else is", facts...)
	}
}

// redacted returns an error without the values of headers, which a collector may repeat in its answer, and cut to a line.
func (f *faults) redacted(err error) error {
	text := err.Error()
	for _, secret := range f.secrets {
		if secret != "" {
			text = strings.ReplaceAll(text, secret, "…")
		}
	}
	const most = 300
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return errors.New(text)
}

// quiet passes on what OpenTelemetry logs as an error, without the values beside it: they may be those of headers.
type quiet struct{ faults *faults }

// Init implements [logr.LogSink].
func (quiet) Init(logr.RuntimeInfo) {}

// Enabled implements [logr.LogSink].
func (quiet) Enabled(int) bool { return false }

// Info implements [logr.LogSink].
func (quiet) Info(int, string, ...any) {}

// Error implements [logr.LogSink].
func (q quiet) Error(_ error, msg string, _ ...any) { q.faults.Handle(errors.New(msg)) }

// WithValues implements [logr.LogSink].
func (q quiet) WithValues(...any) logr.LogSink { return q }

// WithName implements [logr.LogSink].
func (q quiet) WithName(string) logr.LogSink { return q }
