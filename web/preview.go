package web

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"getwork/assign"
	"getwork/assign/rights"
)

// previewRows is how many rows a preview shows by default.
const previewRows = 10

// mayWriteQueries refuses a manager who is not among those who may write queries.
func (s *server) mayWriteQueries(r *http.Request) error {
	if s.QueryAuthors == "" || slices.Contains(CallerOf(r).Groups, s.QueryAuthors) {
		return nil
	}
	return assign.Refuse(assign.Forbidden, "only managers in the group %q may write, preview and restore queries; you can change the other settings of a task, and pause it", s.QueryAuthors)
}

// preview shows what a task's query, or another one for that task, would return. It writes nothing.
func (s *server) preview(w http.ResponseWriter, r *http.Request) error {
	name, err := segment(r, "task")
	if err != nil {
		return err
	}
	body := struct {
		Query *assign.Query `json:"query"`
		Limit int           `json:"limit"`
	}{Limit: previewRows}
	if err := s.mayWriteQueries(r); err != nil {
		return err
	}
	if err := decodeIfAny(w, r, &body); err != nil {
		return err
	}
	return s.answerPreview(w, r, func(ctx context.Context) (assign.Preview, error) {
		return s.Engine.Ranker.Preview(ctx, name, body.Query, body.Limit)
	})
}

// previewNew does so for a task that does not exist yet; the body has the settings that the query runs with.
func (s *server) previewNew(w http.ResponseWriter, r *http.Request) error {
	if err := s.mayWriteQueries(r); err != nil {
		return err
	}
	settings := assign.DefaultSettings()
	body := struct {
		Query        *assign.Query    `json:"query"`
		QueryTimeout *assign.Duration `json:"query_timeout"`
		Slots        *int             `json:"slots"`
		Limit        int              `json:"limit"`
	}{&settings.Query, &settings.QueryTimeout, &settings.Slots, previewRows}
	if err := decode(w, r, &body); err != nil {
		return err
	}
	return s.answerPreview(w, r, func(ctx context.Context) (assign.Preview, error) {
		return s.Engine.Ranker.PreviewNew(ctx, settings, body.Limit)
	})
}

// showSchema answers with the tables and columns that a ranking query may read.
func (s *server) showSchema(w http.ResponseWriter, r *http.Request) error {
	if err := s.mayWriteQueries(r); err != nil {
		return err
	}
	schema, err := readPatiently(s, w, r, s.Engine.Ranker.Schema)
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, schema)
}

func (s *server) answerPreview(w http.ResponseWriter, r *http.Request, read func(context.Context) (assign.Preview, error)) error {
	preview, err := readPatiently(s, w, r, read)
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, preview)
}

// answerFor is how long a client may take to read an answer that took long to make.
const answerFor = 30 * time.Second

// patiently runs calls that execute a task's query. They may take as long as the query, which the engine bounds, and are
// given up when the node shuts down.
func (s *server) patiently(w http.ResponseWriter, r *http.Request, do func(context.Context) error) error {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	go func() {
		select {
		case <-s.Draining:
			cancel()
		case <-ctx.Done():
		}
	}()
	err := do(ctx)
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(answerFor)) // the server's own deadline may be over by now
	if err != nil && ctx.Err() != nil && r.Context().Err() == nil {
		return assign.Refuse(assign.Unavailable, "this node is shutting down; ask again, and another node answers")
	}
	return err
}

// readPatiently is patiently for calls that only read. Their query is cancelled when the caller's rights end or change: whoever is
// blocked must not see what it finds. How long a proxy's word lasts does not bound it, since such a query would never be answered.
func readPatiently[T any](s *server, w http.ResponseWriter, r *http.Request, read func(context.Context) (T, error)) (found T, err error) {
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	if c := CallerOf(r); s.Rights != nil && c.Rights != nil {
		defer s.Rights.Follow(c.Rights, 0, func(why rights.End) { cancel(callEndOf(why)) })()
	}
	err = s.patiently(w, r.WithContext(ctx), func(ctx context.Context) (err error) {
		found, err = read(ctx)
		return err
	})
	if ended := (*assign.Refusal)(nil); errors.As(context.Cause(ctx), &ended) {
		return found, ended
	}
	return found, err
}
