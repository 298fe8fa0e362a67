package cli

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"getwork/assign"
	"getwork/cmd/internal/command"
	"getwork/cmd/internal/e2e"
)

func TestWebhookCommands(t *testing.T) {
	t.Parallel()
	c := e2e.NewTerminal(t)
	c.Run(0, nil, "task", "create", "--name", "photos", "--inbox")
	c.Run(2, e2e.Text("say whose events"), "webhook", "create", "https://localhost:1/")
	c.Run(1, e2e.Text("url begins with https://"), "webhook", "create", "http://localhost:1/", "--task", "photos")
	c.Run(0, e2e.Text("whsec_", "Web hook 1 is told of alert.begun, alert.ended, run.failed, work.assigned, work.closed, work.expired."), "webhook", "create", "https://localhost:1/", "--task", "photos")
	c.Run(1, e2e.Text("the test failed: ", "refused: ", "is loopback, link-local"), "webhook", "test", "1")
	c.Run(0, e2e.Text("webhook.test", "waiting", "refused"), "webhook", "deliveries", "1")
	c.Run(0, e2e.Text("photos", "https://localhost:1/"), "webhook", "list", "--task", "photos")
	c.Run(0, e2e.Text("whsec_", "The former one signs, too, until"), "webhook", "rotate", "1")
	c.Run(0, e2e.Text("whsec_", "The former one signs nothing any more"), "webhook", "rotate", "1", "--keep", "0s")
	c.Run(0, e2e.Text("To be sent again: 0 events"), "webhook", "redrive", "1")
	var list struct{ Webhooks []assign.Webhook }
	c.Decode(0, &list, "webhook", "list")
	if len(list.Webhooks) != 1 || list.Webhooks[0].Waiting != 1 {
		t.Errorf("listed: %+v", list)
	}
	var tried struct{ Deliveries []assign.Delivery }
	c.Decode(1, &tried, "webhook", "test", "1")
	if len(tried.Deliveries) != 1 || tried.Deliveries[0].Error == nil {
		t.Errorf("tried: %+v", tried)
	}
	c.Run(0, e2e.Text("Web hook 1 is deleted"), "webhook", "delete", "1", "--yes")
	c.Run(0, e2e.Text("There are no web hooks"), "webhook", "list")
}

// A redrive of very many events goes on until a call brings back the last ones.
func TestWebhookRedriveOfVeryMany(t *testing.T) {
	t.Parallel()
	left := 2*assign.RedriveBatch + 7
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n := min(left, assign.RedriveBatch)
		left -= n
		_, _ = fmt.Fprintf(w, `{"count":%d}`, n)
	}))
	defer server.Close()
	var out bytes.Buffer
	err := webhookRedriveCmd{webhookID: webhookID{ID: 1}, Remote: Remote{URL: server.URL, User: "mary"}}.Run(t.Context(), &command.Streams{Out: &out, Errs: new(bytes.Buffer)})
	if want := "To be sent again: 10007 events.\n"; err != nil || out.String() != want || left != 0 {
		t.Errorf("%q, %v; want %q; %d are left", out.String(), err, want, left)
	}
}
