package web

import (
	"context"
	"net/http"
	"time"

	"getwork/assign"
	"getwork/assign/manage"
)

func answerLimits(w http.ResponseWriter, l assign.Limits, version int) error {
	w.Header().Set("ETag", versionTag(version))
	return answer(w, http.StatusOK, l)
}

func (s *server) showLimits(w http.ResponseWriter, r *http.Request) error {
	l, version, err := s.Records.Limits(r.Context())
	if err != nil {
		return err
	}
	return answerLimits(w, l, version)
}

// setLimits replaces the limits, if they are still as the caller read them (If-Match).
func (s *server) setLimits(w http.ResponseWriter, r *http.Request) error {
	var l assign.Limits
	if err := decode(w, r, &l); err != nil {
		return err
	}
	if err := l.Check(); err != nil {
		return err
	}
	_, version, err := s.Records.Limits(r.Context())
	if err != nil {
		return err
	}
	headers := r.Header.Values("If-Match")
	if len(headers) == 0 {
		return assign.Refuse(assign.NoVersion, "send the limits' ETag as If-Match, so that no change is lost")
	}
	if !namesTag(headers, versionTag(version)) {
		return manage.StaleLimits(version)
	}
	if version, err = manage.SetLimits(r.Context(), s.Engine, l, version, CallerOf(r).Holder.User); err != nil {
		return err
	}
	return answerLimits(w, l, version)
}

// meWithin is how long the caller's identity waits for what they hold.
const meWithin = 2 * time.Second

// room returns what the caller holds over all tasks, and their limit; both nil: they take no work, or the database is away. The page is
// to know whom its cookie names even then.
func (s *server) room(ctx context.Context, c *Caller) (open, limit *int) {
	if c.Wall || c.Role == Observer || c.Role == "" {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, meWithin)
	defer cancel()
	held, limit, err := s.Records.Room(ctx, c.Who())
	if err != nil {
		return nil, nil
	}
	return &held, limit
}
