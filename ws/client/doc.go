// Package client calls getwork from Go programs: a method for each call of the API, typed answers and problems, and the
// live channel. It needs the address of a node, and a token or a name; it opens no connection to a database.
//
//	c := &client.Client{URL: "http://127.0.0.1:8080", User: "Oliver"}
//	request, err := c.GetWork(ctx, "verify-bank-account", client.Click{Count: 3}, client.Wait(time.Minute))
//
// Methods are called as the operations in /openapi.json are, and return the types of package assign. An [Option] adds to
// one call: how long the node may hold its answer, an Idempotency-Key, a place to keep the answer as it came.
//
// A call fails with a [Problem] when the server refused it, with a [NoAnswer] when nothing came back, and with a
// [Foreign] when something answered that is not getwork; errors.As tells them apart. When its context ends it fails with
// the context's cause.
//
// # Repeated calls
//
// A call that is safe to repeat is repeated while no node answers, or none can serve: after a quarter of a second, then
// twice as long each time, or when the server's Retry-After says. Safe are reads, and calls that change nothing the second
// time: to cancel, claim, extend and let go of work. [Client.GetWork] is made safe by an Idempotency-Key, which it sends by
// itself. Any call is repeated that the server has not begun: it was answered 429, or no connection was made. [Retry]
// says how often.
//
// # Live events
//
// [Live] follows the live channel and comes back when a connection ends, with a new snapshot. [Client.Socket] is a single
// connection. Programs that work on items for as long as they run are better served by package ws/agent, which is built
// on this one.
package client
