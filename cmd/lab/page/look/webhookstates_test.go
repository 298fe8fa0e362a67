package look

import (
	"github.com/chromedp/chromedp"

	"getwork/cmd/internal/e2e"
)

// hooked makes web hooks, unless it has done so: one that is well, one that fails and was away for days, and one with a long URL.
// Nothing is sent to them.
func hooked(s *e2e.Site) (made bool) {
	s.T.Helper()
	done, err := s.DB.Exec(s.T.Context(), `
insert into getwork.hook (task_id, url, events, secret, failures, retry_at, created_at, created_by)
select s.task_id, h.url, h.events, 'secret', h.failures, case when h.failures > 0 then clock_timestamp() + interval '48 seconds' end, clock_timestamp() - interval '9 days', 'Mary'
from (values
  (1, 'verify-bank-account', 'https://ledger.bank.example/getwork', '{work.closed,work.expired}'::text[], 0),
  (2, null, 'https://127.0.0.1:1/getwork/events', '{alert.begun,alert.ended,run.failed,work.assigned,work.closed,work.expired}', 6),
  (3, 'documents', 'https://archive.bank.example/v2/tenants/berlin-mitte/inbound/loan-documents/webhooks/getwork?channel=loan-desk&format=standard', '{work.assigned}', 0)
) h (n, task, url, events, failures)
left join getwork.task_state s on s.name = h.task
where not exists (select from getwork.hook)
order by n`)
	if err != nil {
		s.T.Fatal(err)
	}
	s.Exec(`
insert into getwork.hook_event (hook_id, task_id, item, type, body, state, attempts, created_at, next_at, ended_at, status, error)
select h.id, 1, e.item, e.type, '{}', e.state, e.attempts, clock_timestamp() - e.age, clock_timestamp() + interval '40 minutes',
  case when e.state <> 'waiting' then clock_timestamp() - e.age / 9 end, e.status, e.error
from getwork.hook h cross join (values
  ('L-2041', 'work.assigned', 'dead', 17, interval '100 hours', 503, 'answered 503'),
  ('L-2041', 'work.closed', 'dead', 16, interval '99 hours', 503, 'answered 503'),
  ('', 'run.failed', 'dead', 16, interval '98 hours', null, 'dial tcp 127.0.0.1:1: connect: connection refused'),
  ('L-2048', 'work.assigned', 'delivered', 1, interval '20 hours', 204, null),
  ('L-2048', 'work.closed', 'delivered', 3, interval '19 hours', 200, null),
  ('L-2055', 'work.assigned', 'waiting', 4, interval '2 hours', null, 'no answer within 10s'),
  ('L-2062', 'work.expired', 'waiting', 0, interval '1 minute', null, null)
) e (item, type, state, attempts, age, status, error)
where h.task_id is null and not exists (select from getwork.hook_event)`)
	return done.RowsAffected() > 0
}

// withHooks is for states with web hooks. If there were none, the page is opened anew.
func withHooks(then func(*stage)) func(*stage) {
	return func(st *stage) {
		st.T.Helper()
		if hooked(st.s) {
			st.Do(chromedp.Reload())
			st.State("live", e2e.Soon)
		}
		then(st)
	}
}

var webhookStates = []state{
	{name: "webhooks none", user: "Mary,manager", path: "/webhooks", reach: sees("There are no web hooks yet.")},
	{name: "webhooks", user: "Mary,manager", path: "/webhooks", reach: withHooks(sees("6 failures in a row"))},
	{name: "webhook new", user: "Mary,manager", path: "/webhooks?task=documents", reach: withHooks(func(st *stage) {
		st.Sees("Only those that are told of Sort documents.")
		st.Await(`[...document.querySelectorAll('[data-hook]')].map((e) => e.dataset.hook).join() === '2,3'`, e2e.Soon)
		st.Use("button", "New web hook")
		st.Await(`document.querySelector('#hook-task').value === 'documents'`, e2e.Soon)
		st.Fill("textbox", "URL", "http://receiver.example")
		presses("URL begins with https://", "button Make the web hook")(st)
	})},
	{name: "webhook made", user: "Mary,manager", path: "/webhooks", reach: func(st *stage) {
		st.Use("button", "New web hook")
		st.Fill("textbox", "URL", "https://receiver.example/getwork")
		st.Choose("Task", "Sort documents")
		presses("Copy the secret now", "button Make the web hook")(st)
	}},
	{name: "webhook", user: "Mary,manager", path: "/webhooks?hook=2", reach: withHooks(sees("no answer within 10s"))},
	{name: "webhook dead", user: "Mary,manager", path: "/webhooks?hook=2&state=dead", reach: withHooks(sees("It is sent no more, unless you send it again."))},
	{name: "webhook new secret", user: "Mary,manager", path: "/webhooks?hook=1", reach: withHooks(presses("The former secret signs, too:", "button New secret"))},
	{name: "webhook test", user: "Mary,manager", path: "/webhooks?hook=2", reach: withHooks(presses("127.0.0.1 is loopback", "button Send a test"))},
	{name: "webhook gone", user: "Mary,manager", path: "/webhooks?hook=999", reach: sees("It is deleted, or not yours to see.")},
	{name: "webhooks unread", user: "Mary,manager", path: "/webhooks", reach: func(st *stage) {
		st.Eval(`(() => {
			const said = JSON.stringify({ detail: 'the database is away' });
			window.serverSaid.push(said);
			window.fetch = async () => new Response(said, { status: 503, headers: { 'Content-Type': 'application/problem+json' } });
			document.querySelector('#views a[href="/webhooks"]').click(); // on a phone it is behind "More"
			return '';
		})()`)
		st.Sees("They can’t be read: the database is away")
	}},
}
