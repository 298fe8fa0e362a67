package hook

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"getwork/assign"
)

var since = time.Date(2026, 11, 25, 9, 0, 0, 0, time.UTC)

func failing(count int64) assign.Alert {
	return assign.Alert{Kind: assign.AlertFailing, Task: "verify", TaskID: 1, Since: since, Count: count}
}

func late(task int64) assign.Alert {
	return assign.Alert{Kind: assign.AlertLate, Task: fmt.Sprint("task-", task), TaskID: task, Since: since.Add(time.Hour), Count: 9}
}

// tell has the sender tell of these alerts.
func (d *desk) tell(alerts ...assign.Alert) {
	d.t.Helper()
	d.sender.Alerts = func(context.Context) ([]assign.Alert, error) { return alerts, nil }
	if err := d.sender.tidy(d.t.Context()); err != nil {
		d.t.Fatal(err)
	}
}

// events are those of all hooks, in order.
func (d *desk) events() string {
	d.t.Helper()
	return d.text(`select coalesce(string_agg(concat_ws(' ', hook_id, type, body->'data'->>'task', body->'data'->>'kind', body->'data'->>'count'), ', ' order by id), '') from getwork.hook_event`)
}

// A hook is told when an alert of its tasks begins and when it ends, and of nothing between.
func TestAlertsAreTold(t *testing.T) {
	t.Parallel()
	d := newDesk(t, nil)
	d.tell(failing(1))
	d.hook("alert.begun", "alert.ended")
	if _, _, err := d.Create(t.Context(), assign.NewWebhook{URL: d.receiver.URL + "/all", Events: []string{"alert.ended"}}, "mia"); err != nil {
		t.Fatal(err)
	}
	d.hook("work.closed")
	want := "1 alert.begun verify failing 1"
	for _, step := range []struct {
		what   string
		alerts []assign.Alert
		more   string
	}{
		{"what has begun before", []assign.Alert{failing(1)}, ""},
		{"it goes on", []assign.Alert{failing(5)}, ""},
		{"another one of another task", []assign.Alert{failing(6), late(2)}, ""},
		{"both end", nil, ", 1 alert.ended verify failing, 2 alert.ended verify failing, 2 alert.ended task-2 late"},
		{"nothing", nil, ""},
		{"it begins again", []assign.Alert{failing(2)}, ", 1 alert.begun verify failing 2"},
	} {
		d.tell(step.alerts...)
		want += step.more
		if got := d.events(); got != want {
			t.Fatalf("%s: %q, want %q", step.what, got, want)
		}
	}
	body := d.text(`select body::text from getwork.hook_event order by id limit 1`)
	if !strings.Contains(body, `"data" : {"task":"verify","kind":"failing","since":"2026-11-25T09:00:00Z","count":1}`) {
		t.Errorf("the event is %s", body)
	}
}

// Two nodes that notice an alert at once write one event. A third, which would have died before its commit, leaves it to them.
func TestAlertIsToldOnce(t *testing.T) {
	t.Parallel()
	d := newDesk(t, nil)
	d.hook("alert.begun", "alert.ended")
	dying, cancel := context.WithCancel(t.Context())
	d.sender.Alerts = func(context.Context) ([]assign.Alert, error) {
		cancel()
		return []assign.Alert{failing(1)}, nil
	}
	if err := d.sender.tellAlerts(dying); err == nil {
		t.Error("a node that dies has told of the alert")
	}
	together := func(alerts ...assign.Alert) {
		var both, done sync.WaitGroup
		both.Add(2)
		for range 2 {
			s := d.newSender()
			s.Alerts = func(context.Context) ([]assign.Alert, error) { // both have read what the hook was told
				both.Done()
				both.Wait()
				return alerts, nil
			}
			done.Go(func() {
				if err := s.tellAlerts(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		done.Wait()
	}
	together(failing(1))
	together()
	if got, want := d.events(), "1 alert.begun verify failing 1, 1 alert.ended verify failing"; got != want {
		t.Errorf("%q, want %q", got, want)
	}

	// A node that has read an alert, and is slow, tells nothing of it when others have told its beginning and its end meanwhile.
	slow := d.newSender()
	slow.Alerts = func(context.Context) ([]assign.Alert, error) {
		d.tell(failing(2))
		d.tell()
		return []assign.Alert{failing(2)}, nil
	}
	if err := slow.tellAlerts(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, want := d.events(), "1 alert.begun verify failing 1, 1 alert.ended verify failing, 1 alert.begun verify failing 2, 1 alert.ended verify failing"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// The bodies that Slack and Teams document. A receiver gets nothing else, and it is signed.
type slackMessage struct {
	Text string `json:"text"`
}

type teamsMessage struct {
	Type        string `json:"type"`
	Attachments []struct {
		ContentType string  `json:"contentType"`
		ContentURL  *string `json:"contentUrl"`
		Content     struct {
			Schema  string `json:"$schema"`
			Type    string `json:"type"`
			Version string `json:"version"`
			Body    []struct {
				Type    string `json:"type"`
				Inlines []struct {
					Type string `json:"type"`
					Text string `json:"text"`
				} `json:"inlines"`
			} `json:"body"`
		} `json:"content"`
	} `json:"attachments"`
}

// strictly decodes a body that has these fields and no others.
func strictly(t *testing.T, body string, into any) {
	t.Helper()
	decoder := json.NewDecoder(bytes.NewReader([]byte(body)))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		t.Errorf("%s: %v", body, err)
	}
}

func TestForms(t *testing.T) {
	t.Parallel()
	for _, form := range []string{assign.SlackForm, assign.TeamsForm} {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			d := newDesk(t, nil)
			w, secret, err := d.Create(t.Context(), assign.NewWebhook{Task: &d.task, URL: d.receiver.URL + "/services/T0/B0/x", Form: form}, "mia")
			if err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprintf("%s as %s", w.Events, w.Form); got != "[alert.begun alert.ended] as "+form {
				t.Errorf("it is told of %s", got)
			}
			if all, err := d.List(t.Context(), Which{Own: true}); err != nil || len(all) != 1 || all[0].Form != form {
				t.Errorf("it is listed as %+v: %v", all, err)
			}
			says := func(want string) {
				t.Helper()
				d.once()
				m := d.receiver.last()
				var text string
				if form == assign.SlackForm {
					var got slackMessage
					strictly(t, m.body, &got)
					text = got.Text
				} else {
					var got teamsMessage
					strictly(t, m.body, &got)
					if c := got.Attachments[0]; got.Type != "message" || c.ContentType != "application/vnd.microsoft.card.adaptive" || c.Content.Type != "AdaptiveCard" ||
						c.Content.Version != "1.2" || c.Content.Body[0].Type != "RichTextBlock" || c.Content.Body[0].Inlines[0].Type != "TextRun" {
						t.Errorf("the card is %s", m.body)
					}
					text = got.Attachments[0].Content.Body[0].Inlines[0].Text
					want = strings.NewReplacer("&lt;", "<", "&gt;", ">", "&amp;", "&").Replace(want)
				}
				if text != want {
					t.Errorf("it says %q, want %q", text, want)
				}
				checkSignature(t, m, secret)
			}
			d.tell(failing(3))
			says("verify: failing: its query has failed since 25 November 09:00 UTC.")
			d.tell()
			says("verify: over: failing, since 25 November 09:00 UTC.")
			if _, err := d.Test(t.Context(), w.ID, anybody); err != nil {
				t.Fatal(err)
			}
			says(fmt.Sprintf("getwork: this is a test of web hook %d.", w.ID))
			d.exec(`update getwork.hook set events = array['work.assigned', 'work.closed']`)
			d.assign("<!channel> & co")
			says("verify: item &lt;!channel&gt; &amp; co went to oliver.")
			d.close("<!channel> & co")
			says("verify: item &lt;!channel&gt; &amp; co of oliver: completed.")
		})
	}
	d := newDesk(t, nil)
	if _, _, err := d.Create(t.Context(), assign.NewWebhook{URL: d.receiver.URL, Form: "pager"}, "mia"); err == nil || !strings.Contains(err.Error(), "form is one of") {
		t.Errorf("a form that nobody knows: %v", err)
	}
}

func checkSignature(t *testing.T, m message, secret string) {
	t.Helper()
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil {
		t.Fatal(err)
	}
	mac := hmac.New(sha256.New, key)
	_, _ = fmt.Fprintf(mac, "%s.%s.%s", m.header.Get("Webhook-Id"), m.header.Get("Webhook-Timestamp"), m.body)
	if got, want := m.header.Get("Webhook-Signature"), "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)); got != want {
		t.Errorf("the signature of %s is %s, want %s", m.body, got, want)
	}
}

// Each event has a sentence.
func TestSentences(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`{"type":"run.failed","data":{"task":"verify","run":"7"}}`:                                                        "verify: a run of its query failed.",
		`{"type":"work.expired","data":{"task":"verify","item":"17","user":"oliver","state":"expired"}}`:                  "verify: the lease of item 17 of oliver ran out.",
		`{"type":"alert.begun","data":{"task":"verify","kind":"unserved","since":"2026-11-25T09:00:00Z","count":2}}`:      "verify: unserved: people wait, and nobody has been served since 25 November 09:00 UTC.",
		`{"type":"alert.begun","data":{"task":"verify","kind":"late","since":"2026-11-25T09:00:00Z","count":2}}`:          "verify: late: the deadline of items is over, of the first since 25 November 09:00 UTC; items: 2.",
		`{"type":"alert.begun","data":{"task":"verify","kind":"backlog","since":"2026-11-25T09:00:00+01:00","count":12}}`: "verify: backlog: the oldest item has been there since 25 November 08:00 UTC; items: 12.",
		`{"type":"alert.begun","data":{"task":"verify","kind":"newer","since":"2026-11-25T09:00:00Z"}}`:                   "verify: newer since 25 November 09:00 UTC.",
		`{"type":"newer.event","data":{"task":"verify"}}`:                                                                 "verify: newer.event",
	} {
		if got := sentence([]byte(body)); got != want {
			t.Errorf("%s is told as %q, want %q", body, got, want)
		}
	}
}
