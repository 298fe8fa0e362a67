// Package client calls getwork from Go programs: a method for each call of the API, typed answers and problems, and the
// live channel. It needs the address of a node, and a token or a name; it opens no connection to a database.
//
//	c := &client.Client{URL: "http://127.0.0.1:8080", User: "Oliver"}
//	request, err := c.GetWork(ctx, "verify-bank-account", client.Click{Count: 3}, client.Wait(time.Minute))
//
// Methods are named after the operations in /openapi.json, and return the types of package assign. An [Option] extends one
// call: how long the node may hold its answer, an Idempotency-Key, a variable for the raw answer.
//
// A call fails with a [Problem] if the server refused it, with a [NoAnswer] if no answer came, and with a [Foreign] if
// something other than getwork answered; errors.As distinguishes them. If its context ends, it fails with the context's
// cause. It fails at once, with any other error, if it can't be sent: the URL is no address of a node, or a token has a line break.
//
// # Repeated calls
//
// A call that is safe to repeat is repeated while no node answers, or none can serve: after a quarter of a second, then
// twice as long each time, or when the server's Retry-After says. Reads are safe, and so are calls that change nothing the
// second time: cancel, claim, extend and dispose. [Client.GetWork] is safe because it sends an Idempotency-Key. Every call is
// repeated if the server has not begun it: it was answered 429, or no connection was made; but not if its user has done something too
// often ([assign.RateLimited]) and would wait for more than a minute. [Retry] sets the limits, and says whether
// answers of something other than getwork are waited out as well.
//
// # Live events
//
// [Live] follows the live channel and reconnects when a connection ends, with a new snapshot. [Client.Socket] is a single
// connection. For programs that work on items continuously, use package ws/agent, which is built on this one.
package client
