package tracing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"getwork/assign/pg"
)

// The attributes of spans. None has an item, details, a note, an error's text or a user: whoever reads traces need not see what people
// work on.
const (
	taskKey    = attribute.Key("getwork.task")
	requestKey = attribute.Key("getwork.request")
	runKey     = attribute.Key("getwork.run")
	roundKey   = attribute.Key("getwork.round")
	stateKey   = attribute.Key("getwork.state") // what a request or a run ended as
)

// Config is what a Tracer needs.
type Config struct {
	Tracer trace.Tracer // decides what is sampled, and gets the spans
	DB     pg.Router
	SQL    func(string) string // puts the schema's name into a statement; nil: the schema is getwork
	Log    *slog.Logger
}

// Tracer makes the spans of a node. A nil Tracer is off: its methods do nothing.
type Tracer struct {
	config Config
	told   chan event
	over   chan struct{} // closed when Run has ended
	limit  pg.LogLimiter
	lost   atomic.Int64 // events that found the queue full since the last log line

	mu   sync.Mutex
	runs map[int64]trace.Span // under way on this node
}

// queued is how many rounds and pushes may wait for their spans. More are dropped.
const queued = 1024

// New returns a tracer. Its Run makes the spans of rounds and pushes.
func New(c Config) *Tracer {
	if c.SQL == nil {
		c.SQL = func(statement string) string { return statement }
	}
	return &Tracer{config: c, told: make(chan event, queued), over: make(chan struct{}), runs: map[int64]trace.Span{}}
}

// Now returns the time if tracing is on: something begins that will be a span.
func (t *Tracer) Now() (now time.Time) {
	if t != nil {
		now = time.Now()
	}
	return now
}

// Waiting are the spans of clicks that wait, the oldest first.
type Waiting []trace.SpanContext

// The bound keeps a run's links below the SDK's limit of 128.
const selectTracesWaiting = `
select traceparent
from getwork.work_requested
where task_id = $1 and state = 'pending' and traceparent is not null
order by id
limit 100`

// Waiting reads the spans of the clicks that wait for a task, in the transaction that records a run.
func (t *Tracer) Waiting(ctx context.Context, tx pgx.Tx, task int64) (Waiting, error) {
	if t == nil {
		return nil, nil
	}
	rows, err := tx.Query(ctx, t.config.SQL(selectTracesWaiting), task)
	if err != nil {
		return nil, err
	}
	texts, err := pgx.CollectRows(rows, pgx.RowTo[string])
	var waiting Waiting
	for _, text := range texts {
		if is := parse(text); is.IsValid() {
			waiting = append(waiting, is)
		}
	}
	return waiting, err
}

// RunBegan begins the span of a run of this node, for the clicks that wait for it. If the oldest of them is sampled, so is the run.
func (t *Tracer) RunBegan(run int64, task string, waiting Waiting) {
	if t == nil {
		return
	}
	ctx := context.Background()
	if len(waiting) > 0 {
		ctx = trace.ContextWithRemoteSpanContext(ctx, waiting[0])
	}
	links := make([]trace.Link, len(waiting))
	for i := range waiting {
		links[i].SpanContext = waiting[i]
	}
	_, span := t.config.Tracer.Start(ctx, "run", trace.WithLinks(links...), trace.WithAttributes(taskKey.String(task), runKey.Int64(run)))
	t.mu.Lock()
	defer t.mu.Unlock()
	t.runs[run] = span
}

// RunEnded ends the span of a run; end is what it ended as.
func (t *Tracer) RunEnded(run int64, end string) {
	if t == nil {
		return
	}
	t.mu.Lock()
	span := t.runs[run]
	delete(t.runs, run)
	t.mu.Unlock()
	if span == nil {
		return
	}
	span.SetAttributes(stateKey.String(end))
	if end == "failed" {
		span.SetStatus(codes.Error, "")
	}
	span.End()
}

// RunTrace returns the trace of a run that is under way on this node; empty: it has none.
func (t *Tracer) RunTrace(run int64) string {
	if is := t.runSpan(run); is.IsValid() {
		return is.TraceID().String()
	}
	return ""
}

func (t *Tracer) runSpan(run int64) (is trace.SpanContext) {
	if t == nil {
		return is
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if span := t.runs[run]; span != nil {
		is = span.SpanContext()
	}
	return is
}

// Answered makes spans for the requests that a round has ended, and whose clicks were sampled. It is called after the round's commit;
// began is when the round began, as [Tracer.Now] said. run is the run that the round ended; 0: none.
func (t *Tracer) Answered(round, run int64, began time.Time, requests []int64) {
	if t == nil || len(requests) == 0 {
		return
	}
	e := event{name: "assign", requests: requests, began: began, ended: time.Now(), facts: []attribute.KeyValue{roundKey.Int64(round)}}
	if run != 0 {
		e.facts = append(e.facts, runKey.Int64(run))
		e.link = t.runSpan(run)
	}
	t.tell(e)
}

// Pushed makes spans for the results that were handed to live channels of this node, and whose clicks were sampled. began is when their
// delivery began, as [Tracer.Now] said.
func (t *Tracer) Pushed(began time.Time, requests []int64) {
	if t == nil || len(requests) == 0 {
		return
	}
	t.tell(event{name: "push", requests: requests, began: began, ended: time.Now()})
}

// event is something that happened to requests, and is to become a span of each whose click was sampled.
type event struct {
	name         string
	requests     []int64
	began, ended time.Time
	link         trace.SpanContext // invalid: none
	facts        []attribute.KeyValue
}

// tell queues an event. It does not wait: whoever calls it serves people.
func (t *Tracer) tell(e event) {
	select {
	case t.told <- e:
	default:
		t.lost.Add(1)
	}
}

const (
	// lastWithin is how long the spans of what happened before the node's end may take.
	lastWithin = 500 * time.Millisecond

	// readWithin bounds one read of traceparents. Meanwhile the queue fills, so that a database that stands still costs spans.
	readWithin = 5 * time.Second

	// readAtOnce is how many requests are enough for one read.
	readAtOnce = 1000
)

// Run makes the spans of what happens, until ctx ends, and then those of what has happened before. It returns nil.
func (t *Tracer) Run(ctx context.Context) error {
	defer close(t.over)
	work, end := context.WithCancel(pg.AsOwn(context.WithoutCancel(ctx)))
	defer end()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(lastWithin, end) })()
	for {
		select {
		case e := <-t.told:
			t.emit(work, t.gather(e))
			continue
		default:
		}
		select {
		case e := <-t.told:
			t.emit(work, t.gather(e))
		case <-ctx.Done():
			return nil
		}
	}
}

// Wait returns when Run has ended, or when ctx ends.
func (t *Tracer) Wait(ctx context.Context) {
	select {
	case <-t.over:
	case <-ctx.Done():
	}
}

// gather adds what waits in the queue, so that one read serves all of it.
func (t *Tracer) gather(first event) []event {
	events, n := []event{first}, len(first.requests)
	for n < readAtOnce {
		select {
		case e := <-t.told:
			events, n = append(events, e), n+len(e.requests)
		default:
			return events
		}
	}
	return events
}

const selectTraces = `
select r.id, r.traceparent, r.state, s.name
from getwork.work_requested r join getwork.task_state s using (task_id)
where r.id = any($1::bigint[]) and r.traceparent is not null`

// traced is a request whose click was sampled.
type traced struct {
	click       trace.SpanContext
	state, task string
}

// emit makes the spans of events.
func (t *Tracer) emit(ctx context.Context, events []event) {
	var ids []int64
	for _, e := range events {
		ids = append(ids, e.requests...)
	}
	requests, err := t.read(ctx, ids)
	if lost := t.lost.Swap(0); lost > 0 {
		err = errors.Join(err, fmt.Errorf("%d rounds and pushes came faster than their traceparents can be read; sample fewer calls (OTEL_TRACES_SAMPLER)", lost))
	}
	if err != nil {
		if facts := t.limit.Again("read traceparents", err); facts != nil {
			t.config.Log.Warn("spans are lost", facts...)
		}
	}
	for _, e := range events {
		for _, id := range e.requests {
			if r, ok := requests[id]; ok {
				t.span(e, id, r)
			}
		}
	}
}

func (t *Tracer) read(ctx context.Context, ids []int64) (map[int64]traced, error) {
	ctx, cancel := context.WithTimeout(ctx, readWithin)
	defer cancel()
	rows, err := t.config.DB.Query(ctx, t.config.SQL(selectTraces), ids)
	if err != nil {
		return nil, err
	}
	requests := map[int64]traced{}
	var id int64
	var text string
	var r traced
	_, err = pgx.ForEachRow(rows, []any{&id, &text, &r.state, &r.task}, func() error {
		if r.click = parse(text); r.click.IsValid() {
			requests[id] = r
		}
		return nil
	})
	return requests, err
}

// span makes a span that is over already.
func (t *Tracer) span(e event, id int64, r traced) {
	facts := append([]attribute.KeyValue{taskKey.String(r.task), requestKey.Int64(id), stateKey.String(r.state)}, e.facts...)
	options := []trace.SpanStartOption{trace.WithTimestamp(e.began), trace.WithAttributes(facts...)}
	if e.link.IsSampled() {
		options = append(options, trace.WithLinks(trace.Link{SpanContext: e.link}))
	}
	_, span := t.config.Tracer.Start(trace.ContextWithRemoteSpanContext(context.Background(), r.click), e.name, options...)
	span.End(trace.WithTimestamp(e.ended))
}
