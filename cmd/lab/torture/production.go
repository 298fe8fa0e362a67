package torture

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	"getwork/cmd/lab/torture/history"
)

// reader is the login of queries. It may read nothing of getwork's.
const (
	reader     = "torture_reader"
	makeReader = `create role torture_reader login password 'reader'`
)

// openProduction has the nodes run as in production: they log in as no superuser, queries have a login of their own, and there is a
// receiver for web hooks.
func (s *stage) openProduction(ctx context.Context) (err error) {
	if err := s.execute(ctx, makeReader); err != nil {
		return fmt.Errorf("create the query login: %w", err)
	}
	u, err := url.Parse(s.url)
	if err != nil {
		return err
	}
	u.User = url.UserPassword(reader, "reader")
	s.queries = u.String()
	if s.login, err = s.server.LoginURL(ctx, "postgres"); err != nil {
		return err
	}
	s.receiver, err = openReceiver(s)
	return err
}

// makeHooks makes two web hooks: one of everything, and one of a part. Nobody works yet, so both hear of all from the first event on.
func (s *stage) makeHooks(ctx context.Context) error {
	boss := caller{stage: s, who: history.Who{User: "boss"}, role: "manager"}
	for _, hook := range []map[string]any{
		{"url": s.receiver.url + "/everything", "events": []string{"work.assigned", "work.closed", "work.expired", "run.failed"}}, // alerts come by time alone
		{"url": s.receiver.url + "/closed", "task": "inbox", "events": []string{"work.closed"}},
	} {
		if err := boss.insist(ctx, request{method: http.MethodPost, path: "/api/v1/webhooks", body: hook}); err != nil {
			return fmt.Errorf("make a web hook: %w", err)
		}
	}
	return nil
}
