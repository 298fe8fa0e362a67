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
package tracing
