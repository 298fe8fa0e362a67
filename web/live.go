package web

import (
	"net/http"
	"time"

	"getwork/assign"
	"getwork/assign/rights"
)

// follow calls end, once, when the caller's rights end or change, until it is released.
func (s *server) follow(c *Caller, end func(rights.End)) (release func()) {
	if s.Rights == nil || c.Rights == nil {
		return func() {}
	}
	var most time.Duration
	if s.HeldFor != nil {
		most = s.HeldFor(c)
	}
	return s.Rights.Follow(c.Rights, most, end)
}

// endOf is what a live channel is told of its end.
func endOf(why rights.End) *assign.Refusal {
	switch why {
	case rights.EndBlocked:
		return assign.Refuse(assign.Forbidden, "your account was blocked, or has no role any more; ask an administrator")
	case rights.EndChanged:
		return assign.Refuse(assign.Unavailable, "your rights have changed; reconnect")
	case rights.EndAway:
		return assign.Refuse(assign.Unavailable, "this node has lost the database; reconnect")
	}
	return assign.Refuse(assign.Unauthenticated, "your log-in has ended; log in again")
}

// callEndOf is what a call that waits is told of the end of its caller's rights.
func callEndOf(why rights.End) *assign.Refusal {
	switch why {
	case rights.EndChanged:
		return assign.Refuse(assign.Unavailable, "your rights have changed meanwhile; ask again")
	case rights.EndAway:
		return assign.Refuse(assign.Unavailable, "this node has lost the database; ask again")
	}
	return endOf(why)
}

// FollowSocket is follow for sockets: end gets the close code, one of package ws, and the reason. watch is nil under --auth dev.
func FollowSocket(watch *rights.Watch, heldFor func(*Caller) time.Duration, r *http.Request, end func(code int, reason string)) (release func()) {
	codes := map[rights.End]int{rights.EndOver: 4401, rights.EndBlocked: 4403, rights.EndChanged: 1012, rights.EndAway: 1013}
	s := &server{Config: Config{Rights: watch, HeldFor: heldFor}}
	return s.follow(CallerOf(r), func(why rights.End) { end(codes[why], endOf(why).Detail) })
}
