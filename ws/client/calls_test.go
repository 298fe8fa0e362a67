package client

import (
	"context"
	"errors"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"getwork/assign"
	"getwork/schema/schematest"
)

// recorder records calls that were answered with a 2xx, or with the switch to a WebSocket.
type recorder struct {
	mu    sync.Mutex
	calls []string // method and path
}

func (r *recorder) RoundTrip(q *http.Request) (*http.Response, error) {
	a, err := http.DefaultTransport.RoundTrip(q)
	if err == nil && (a.StatusCode/100 == 2 || a.StatusCode == http.StatusSwitchingProtocols) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.calls = append(r.calls, q.Method+" "+q.URL.EscapedPath())
	}
	return a, err
}

// withoutCall lists the operations of the API that this package has no method for.
var withoutCall = map[string]string{
	"events":     "the live channel is followed over a WebSocket, which has the same events",
	"listAudit":  "auditors read it by the page, or with getwork audit",
	"createWall": "its answer is a link for a browser",
}

// Every operation of the API has a method, and a real node answers it. A new operation fails here until it has one.
func TestEveryOperationHasACall(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	seen := &recorder{}
	boss, ann, bot := as(t, "boss", "manager"), as(t, unused("Ann"), "worker"), as(t, "bot", "agent")
	for _, c := range []*Client{boss, ann, bot} {
		c.HTTP = &http.Client{Transport: seen}
	}
	bot.Instance = "bot-1"
	everyCall(t, boss, ann, bot)
	everyCallAboutPeople(t, seen)

	var description struct {
		Paths map[string]map[string]struct {
			OperationID string `json:"operationId"`
		} `json:"paths"`
	}
	if err := boss.Do(t.Context(), "GET", "/openapi.json", nil, &description); err != nil {
		t.Fatal(err)
	}
	operations := 0
	for template, methods := range description.Paths {
		if !strings.HasPrefix(template, api+"/") {
			continue // the page's, and for those who run nodes
		}
		pattern := regexp.MustCompile("^" + regexp.MustCompile(`\\\{[a-z]+\\\}`).ReplaceAllString(regexp.QuoteMeta(template), "[^/]+") + "$")
		for method, operation := range methods {
			operations++
			called := false
			for _, c := range seen.calls {
				m, p, _ := strings.Cut(c, " ")
				called = called || m == strings.ToUpper(method) && pattern.MatchString(p)
			}
			if _, none := withoutCall[operation.OperationID]; called == none {
				t.Errorf("%s (%s %s): called %t, listed as without a call %t", operation.OperationID, method, template, called, none)
			}
		}
	}
	if operations < 30 {
		t.Errorf("the description has %d operations below %s; is it read right?", operations, api)
	}
}

func everyCallAboutAbsences(t *testing.T, boss, bot *Client) {
	ctx := t.Context()
	dan := unused("Dan")
	a := must[assign.Absence](t)(bot.CreateAbsence(ctx, NewAbsence{}))
	if me := must[Me](t)(bot.WhoAmI(ctx)); a.User != "bot" || me.Away == nil || me.Away.ID != a.ID {
		t.Errorf("absent as %+v, away as %+v", a, me.Away)
	}
	if all := must[Page[assign.Absence]](t)(bot.ListAbsences(ctx, "bot", Part{})); len(all.Rows) != 1 || all.Rows[0].ID != a.ID {
		t.Errorf("absences %+v", all)
	}
	if a = must[assign.Absence](t)(bot.EndAbsence(ctx, a.ID)); a.EndedAt == nil {
		t.Errorf("ended as %+v", a)
	}
	from, until := time.Now().Add(time.Hour), time.Now().Add(2*time.Hour)
	if all := must[[]assign.Absence](t)(boss.ImportAbsences(ctx, dan, "hr", []assign.AbsenceWish{{From: &from, Until: &until}})); len(all) != 1 || all[0].Source != "hr" {
		t.Errorf("imported %+v", all)
	}
	if all := must[[]assign.Absence](t)(boss.ImportAbsences(ctx, dan, "hr", nil)); len(all) != 0 {
		t.Errorf("imported %+v", all)
	}
	if all := must[[]string](t)(boss.SetSkills(ctx, dan, []string{"law", "french", "law"})); !slices.Equal(all, []string{"french", "law"}) {
		t.Errorf("skills %v", all)
	}
	if all := must[[]string](t)(boss.ShowSkills(ctx, dan)); len(all) != 2 {
		t.Errorf("skills %v", all)
	}
	if all := must[[]string](t)(boss.SetSkills(ctx, dan, nil)); len(all) != 0 {
		t.Errorf("skills %v", all)
	}
}

// everyCall makes each call once, and checks the parts of the answer that the next call needs.
func everyCall(t *testing.T, boss, ann, bot *Client) {
	ctx := t.Context()
	settings := assign.DefaultSettings()
	photos, end, bob := unused("photos"), unused("end"), unused("Bob")
	settings.Name, settings.Title, settings.Query = unused("loans"), "Loans", "select 'a/' || n as item, n as amount from generate_series(1, 9) n"
	task := must[assign.Task](t)(boss.CreateTask(ctx, settings))
	must[assign.Task](t)(boss.CreateTask(ctx, map[string]any{"name": photos, "max_attempts": 1, "lease": "30s"}))
	if tasks := must[[]assign.Task](t)(ann.ListTasks(ctx)); len(tasks) < 2 {
		t.Errorf("%d tasks", len(tasks))
	}
	everyCallAboutWebhooks(t, boss, task.Name)
	var a Answer
	must[assign.Task](t)(boss.ShowTask(ctx, task.Name, Into(&a)))
	task = must[assign.Task](t)(boss.UpdateTask(ctx, task.Name, map[string]any{"title": "The loans"}, IfMatch(a.Tag())))
	if _, err := boss.UpdateTask(ctx, task.Name, map[string]any{"title": "Mine"}, IfMatch(a.Tag())); KindOf(err) != assign.StaleVersion || StatusOf(err) != 412 {
		t.Errorf("a change of a former version: %v", err)
	}
	must[assign.Limits](t)(boss.ShowLimits(ctx, Into(&a)))
	busy := unused("busy")
	must[assign.Limits](t)(boss.SetLimits(ctx, assign.Limits{People: map[string]*int{busy: new(3)}}, IfMatch(a.Tag())))
	if me := must[Me](t)(as(t, busy, "worker").WhoAmI(ctx)); me.Open != 0 || me.MaxOpen == nil || *me.MaxOpen != 3 {
		t.Errorf("%s is %+v", busy, me)
	}
	if versions := must[Page[assign.Version]](t)(boss.ListVersions(ctx, task.Name, Part{Limit: 1})); len(versions.Rows) != 1 || versions.Next == "" {
		t.Errorf("versions %+v", versions)
	}
	must[assign.Task](t)(boss.RestoreVersion(ctx, task.Name, 1))
	must[assign.Task](t)(boss.SetPaused(ctx, task.Name, true))
	must[assign.Task](t)(boss.SetPaused(ctx, task.Name, false))
	if log := must[Page[assign.TaskChange]](t)(boss.ListTaskLog(ctx, task.Name, Part{Limit: 2})); len(log.Rows) != 2 || log.Rows[0].Act != "resumed" || log.Rows[1].Version != 3 || log.Next == "" {
		t.Errorf("log %+v", log)
	}
	if p := must[assign.Preview](t)(boss.Preview(ctx, task.Name, Trial{Limit: 2})); len(p.Rows) != 2 {
		t.Errorf("a preview shows %d rows, want 2", len(p.Rows))
	}
	if p := must[assign.Preview](t)(boss.PreviewNew(ctx, Trial{Query: "select 1 as item"})); p.Given != 1 {
		t.Errorf("a preview gives %d rows, want 1", p.Given)
	}
	first := 1
	if found := must[assign.Comparison](t)(boss.Compare(ctx, task.Name, Rival{Contender: assign.Contender{Version: &first}})); found.Same == 0 || len(found.Moved) != 0 {
		t.Errorf("a query compared with itself: %+v", found)
	}

	must[assign.Schema](t)(boss.Schema(ctx))

	r := must[assign.Request](t)(ann.GetWork(ctx, task.Name, Click{Count: 2}, Wait(time.Minute)))
	if r.State != assign.Assigned || len(r.Work) != 2 {
		t.Fatalf("Ann got %+v", r)
	}
	must[assign.Request](t)(ann.ShowRequest(ctx, r.ID, Into(&a)))
	if _, err := ann.ShowRequest(ctx, r.ID, IfNoneMatch(a.Tag())); !errors.Is(err, ErrNotModified) {
		t.Errorf("read again: %v, want %v", err, ErrNotModified)
	}
	must[assign.Work](t)(ann.Extend(ctx, r.Work[0].ID))
	must[assign.Work](t)(ann.Later(ctx, r.Work[0].ID, nil))
	if w := must[assign.Work](t)(ann.ShowWork(ctx, r.Work[0].ID)); w.Item != r.Work[0].Item {
		t.Errorf("shown is %+v", w)
	}
	closed := must[assign.Work](t)(ann.Dispose(ctx, r.Work[0].ID, assign.Disposition{Outcome: "complete"}))
	if closed.State != "completed" {
		t.Errorf("it is %s", closed.State)
	}
	both := []int64{r.Work[0].ID, r.Work[1].ID}
	if got := must[[]assign.Result](t)(ann.ExtendMany(ctx, both)); KindOf(RefusalOf(got[0])) != assign.LeaseLost || RefusalOf(got[1]) != nil || got[1].Work.ID != both[1] {
		t.Errorf("extended together: %+v", got)
	}
	again := []assign.Disposal{{ID: both[0], Disposition: assign.Disposition{Outcome: "complete"}}, {ID: 1 << 40, Disposition: assign.Disposition{Outcome: "never"}}}
	if got := must[[]assign.Result](t)(ann.DisposeMany(ctx, again)); RefusalOf(got[0]) != nil || got[0].Work.State != "completed" || StatusOf(RefusalOf(got[1])) != 404 {
		t.Errorf("closed together: %+v", got)
	}
	if _, err := ann.DisposeMany(ctx, append(again, again[0])); KindOf(err) != assign.Invalid {
		t.Errorf("closed twice in one call: %v", err)
	}
	if got := must[[]assign.Result](t)(ann.DisposeMany(ctx, nil)); len(got) != 0 {
		t.Errorf("nothing closed: %+v", got)
	}
	moved := must[assign.Work](t)(boss.Reassign(ctx, r.Work[1].ID, assign.Reassignment{User: bob, Force: true}))
	if p := must[assign.Pipeline](t)(boss.UserPipeline(ctx, bob)); len(p.Work) != 1 || p.Work[0].ID != moved.ID {
		t.Errorf("Bob holds %+v", p.Work)
	}
	found := must[assign.Released](t)(boss.Release(ctx, assign.Release{User: bob, DryRun: true}))
	if done := must[assign.Released](t)(boss.Release(ctx, assign.Release{User: bob, Token: found.Token})); done.Count != 1 {
		t.Errorf("%d released, want 1", done.Count)
	}
	if given := must[assign.Work](t)(boss.Give(ctx, task.Name, "a/7", assign.Reassignment{User: bob})); given.User != bob || given.Item != "a/7" {
		t.Errorf("Bob was given %+v", given)
	} else {
		must[assign.Work](t)(boss.Dispose(ctx, given.ID, assign.Disposition{Outcome: "complete"}))
	}
	claimed := must[assign.Work](t)(ann.Claim(ctx, task.Name, "a/7"))
	if x := must[assign.Explanation](t)(boss.Explain(ctx, task.Name, "a/7")); len(x.Held) != 1 || x.Held[0].ID != claimed.ID {
		t.Errorf("a/7 is %+v", x)
	}
	if d := must[assign.Day](t)(ann.Day(ctx, time.Time{})); d.Tasks == 0 {
		t.Errorf("a day is %+v", d)
	}
	if alerts := must[[]assign.Alert](t)(boss.Alerts(ctx)); len(alerts) > 0 {
		t.Errorf("alerts are %+v", alerts)
	}
	if p := must[assign.Pipeline](t)(ann.Pipeline(ctx)); len(p.Work) != 1 || p.Work[0].Item != "a/7" {
		t.Errorf("Ann holds %+v", p.Work)
	}

	pending := must[assign.Request](t)(bot.GetWork(ctx, photos, Click{Count: 1, Linger: assign.Duration(time.Hour), Lease: assign.Duration(time.Minute)}))
	if waiting := must[Page[assign.Request]](t)(boss.ListRequests(ctx, RequestFilter{Task: photos})); len(waiting.Rows) != 1 || waiting.Rows[0].ID != pending.ID {
		t.Errorf("waiting are %+v", waiting)
	}
	if r := must[assign.Request](t)(bot.CancelRequest(ctx, pending.ID)); r.State != assign.Cancelled {
		t.Errorf("it is %s", r.State)
	}
	if p := must[assign.Pushed](t)(bot.PushItems(ctx, photos, []assign.NewItem{{Item: "a.jpg"}, {Item: "b.jpg"}, {Item: "a.jpg"}})); p.Accepted != 2 || p.Duplicates != 1 {
		t.Errorf("pushed %+v", p)
	}
	var refused *assign.Refusal
	if p, err := bot.PushItems(ctx, photos, []assign.NewItem{{Item: "c.jpg"}, {Item: "\xff"}, {Item: "\xfe"}}); !errors.As(err, &refused) || refused.Fields[0].Field != "[1].item" {
		t.Errorf("keys that are not UTF-8: %+v, %v", p, err)
	}
	if n, err := boss.Redrive(ctx, photos, []string{"a.jpg", "\xff"}); !errors.As(err, &refused) || refused.Fields[0].Field != "items[1]" {
		t.Errorf("%d put back by a key that is not UTF-8: %v", n, err)
	}
	r = must[assign.Request](t)(bot.GetNext(ctx, Next{Tasks: []string{photos}, Click: Click{Count: 1}}, Wait(time.Minute)))
	if r.Task != photos || len(r.Tasks) != 1 || len(r.Work) != 1 {
		t.Errorf("the next item: %+v", r)
	}
	must[assign.Work](t)(bot.Dispose(ctx, r.Work[0].ID, assign.Disposition{Outcome: "fail"}))
	if n, err := boss.Redrive(ctx, photos, []string{}); n != 0 || KindOf(err) != assign.Invalid {
		t.Errorf("%d put back by a list of none, %v", n, err)
	}
	if n := must[int](t)(boss.Redrive(ctx, photos, nil)); n != 1 {
		t.Errorf("%d put back, want 1", n)
	}

	if runs := must[Page[assign.Run]](t)(boss.ListRuns(ctx, task.Name, Part{})); len(runs.Rows) == 0 {
		t.Error("no runs")
	}
	if work := must[Page[assign.Work]](t)(boss.ListWork(ctx, WorkFilter{Task: task.Name, User: ann.User, State: "completed"})); len(work.Rows) != 1 || work.Rows[0].ID != closed.ID {
		t.Errorf("work %+v", work)
	}
	if h := must[Holders](t)(boss.ListHolders(ctx, HolderFilter{Task: task.Name}, Into(&a))); len(h.Rows) != 1 || h.Total == nil || h.Total.Held != 1 || a.Status != 200 {
		t.Errorf("holders %+v, status %d", h, a.Status)
	}
	if h := must[assign.History](t)(boss.History(ctx, Span{Task: task.Name, From: time.Now().Add(-time.Hour), Step: assign.Duration(time.Hour)})); len(h.Tasks) != 1 {
		t.Errorf("history %+v", h)
	}
	must[assign.Returns](t)(boss.Returns(ctx, Span{From: time.Now().Add(-time.Hour)}))
	if me := must[Me](t)(bot.WhoAmI(ctx)); me.User != "bot" || me.Role != "agent" {
		t.Errorf("I am %+v", me)
	}
	everyCallAboutAbsences(t, boss, bot)
	s := must[*Socket](t)(bot.Socket(ctx))
	defer s.Close()
	if s.Hello.User != "bot" {
		t.Errorf("hello %+v", s.Hello)
	}
	must[assign.Task](t)(boss.CreateTask(ctx, map[string]any{"name": end}))
	if err := boss.DeleteTask(ctx, end); err != nil {
		t.Error(err)
	}
}

// AwaitRequest waits until an item is pushed for the request.
func TestAwaitRequest(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	boss, ann, task := as(t, "boss", "manager"), as(t, "Una", ""), unused("await")
	must[assign.Task](t)(boss.CreateTask(ctx, map[string]any{"name": task}))
	r := must[assign.Request](t)(ann.GetWork(ctx, task, Click{Count: 1, Linger: assign.Duration(time.Hour)}))
	if r.State != assign.Pending {
		t.Fatalf("it is %s", r.State)
	}
	must[assign.Pushed](t)(boss.PushItems(ctx, task, []assign.NewItem{{Item: "late"}}))
	r = must[assign.Request](t)(ann.AwaitRequest(ctx, r.ID))
	if len(r.Work) != 1 || r.Work[0].Item != "late" {
		t.Errorf("it got %+v", r.Work)
	}
}

// everyCallAboutWebhooks makes each call about web hooks once.
func everyCallAboutWebhooks(t *testing.T, boss *Client, task string) {
	ctx := t.Context()
	made := must[MadeWebhook](t)(boss.CreateWebhook(ctx, assign.NewWebhook{Task: &task, URL: "https://receiver.invalid/"}))
	if hooks := must[[]assign.Webhook](t)(boss.ListWebhooks(ctx, task)); len(hooks) != 1 || hooks[0].ID != made.ID || made.Secret == "" {
		t.Errorf("web hooks %+v, want %d", hooks, made.ID)
	}
	test := must[int64](t)(boss.TestWebhook(ctx, made.ID))
	if page := must[Page[assign.Delivery]](t)(boss.ListDeliveries(ctx, made.ID, "", Part{})); len(page.Rows) != 1 || page.Rows[0].ID != test {
		t.Errorf("deliveries %+v, want %d", page, test)
	}
	if r := must[RotatedSecret](t)(boss.RotateWebhook(ctx, made.ID, time.Hour)); r.Secret == made.Secret || r.FormerUntil == nil {
		t.Errorf("rotated to %+v", r)
	}
	if n := must[int](t)(boss.RedriveWebhook(ctx, made.ID, []int64{test})); n != 0 {
		t.Errorf("%d events were dead", n)
	}
	if err := boss.DeleteWebhook(ctx, made.ID); err != nil {
		t.Error(err)
	}
}
