// Package tracing makes a node's spans, so that a click on one node, the run on another and the push on a third are one story.
//
// What crosses nodes is a request's traceparent, which its click records (column traceparent of work_requested). These spans are made:
//
//   - a call of the API, by the node that answers it: [Tracer.Call]. A click's is the one that its request records.
//   - "run", a run of a ranking query: [Tracer.RunBegan]. It is a child of the oldest click that waits, and linked to all of them.
//   - "assign", for each request that a round answers, after its commit: [Tracer.Answered]. It is a child of the click, and linked to
//     the run.
//   - "push", for each result that goes to live channels, by the node that has them: [Tracer.Pushed]. It is a child of the click.
//
// The last two are made by [Tracer.Run], which reads the traceparents by itself: rounds and pushes only name their requests to it, hold no
// lock for it, and wait for nothing. If it can't keep up, or a node dies, spans are lost, and nothing else.
//
// A nil [Tracer] is off. Nothing is asked then, and nothing is allocated.
//
// # Deaths
//
//   - A node dies between a round's commit and its spans. The spans are lost; the push on another node is still a part of the
//     trace.
//   - A round's commit is unknown. It makes no span. If it did commit, the push makes one.
//   - Traceparents can't be read fast enough, or the database is away. The queue is bounded, and what is lost is logged.
//     TestNobodyWaitsForSpans
//   - The collector is away, slow, or refuses. Nobody waits, and at its end the node waits for a tenth of --drain-timeout.
//     TestCollectorIsAway
//   - A client sends a malformed traceparent. The call begins a trace of its own, and nothing of the client's text is
//     recorded. TestCall
package tracing
