package story

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"getwork/assign"
	"getwork/cmd/internal/cluster"
	"getwork/cmd/internal/e2e"
)

// loanDesk is a bank with twenty loans, the oldest submission first, except number 1, which is third from the end, so
// that order by id and order by age differ. A table says how long the query takes.
const loanDesk = `
create table loan (
  id integer primary key, submitted_at timestamptz not null, statement_submitted boolean not null default true,
  verified boolean not null default false
);
insert into loan (id, submitted_at, statement_submitted)
select i, timestamptz '2026-01-01 UTC' + case when i = 1 then 18.5 else i end * interval '1 day', i <= 20
from generate_series(1, 23) i;
create table pace (seconds float8 not null);
insert into pace values (3)`

const verifyAccount = e2e.Marker + ` with nap as materialized (select pg_sleep(seconds), gate() from pace)
select l.id as item, l.submitted_at
from nap cross join loan l
where l.statement_submitted and not l.verified
order by l.submitted_at`

// Oliver clicks. Three seconds later, while his query runs, Tracy does, on another node. Neither gets the other's loan,
// and the query runs once.
func TestOliverAndTracy(t *testing.T) {
	t.Parallel()
	s := newSite(t, 3, "")
	_, open := s.Gated(0, 1) // until Tracy has clicked, and asked again
	s.Exec(loanDesk)
	s.Task("verify", verifyAccount)
	s.Task("call", "select id as item from loan order by submitted_at")
	oliver, tracy := s.As("oliver", 0), s.As("tracy", 1)
	stop := s.Sample()

	his := s.told(oliver, 3)
	s.Await("Oliver's query has run for three seconds", time.Minute, `
select clock_timestamp() - query_start >= interval '3 seconds' from pg_stat_activity
where datname = current_database() and wait_event = 'PgSleep' and position($1 in query) > 0`, e2e.Marker)
	screen := s.Dial("tracy", 2)
	hers := s.told(tracy, 3)
	if hers.Position == nil || *hers.Position != 2 {
		t.Errorf("Tracy's place in the line is %v, not 2", hers.Position)
	}
	s.asksAgain(hers)
	if got := s.twoNumbers(); !cmp.Equal(got, []string{"oliver 3 0", "tracy 3 0"}) {
		t.Errorf("while the query runs the requests are %v", got)
	}
	s.Sampled(1)
	open()
	his, hers = s.Served("oliver", 2, his.ID, e2e.Soon), s.Served("tracy", 0, hers.ID, e2e.Soon)
	s.Pushed(screen, 2, hers, e2e.Soon)
	if executions, atOnce := stop(); executions != 1 || atOnce != 1 || s.States() != "finished" {
		t.Errorf("%d executions, %d at once, runs %q; want one", executions, atOnce, s.States())
	}
	if got := append(e2e.Keys(his.Work), e2e.Keys(hers.Work)...); !cmp.Equal(got, []string{"2", "3", "4", "5", "6", "7"}) {
		t.Errorf("Oliver and Tracy got %v; want the oldest, Oliver's before Tracy's", got)
	}
	if got := s.twoNumbers(); !cmp.Equal(got, []string{"oliver 3 3", "tracy 3 3"}) {
		t.Errorf("in the end the requests are %v", got)
	}
	for user, want := range map[string][]string{"oliver": {"2", "3", "4"}, "tracy": {"5", "6", "7"}} {
		if p, err := s.As(user, 2).Pipeline(t.Context()); err != nil || !cmp.Equal(e2e.Keys(p.Work), want) || len(p.Requests) > 0 {
			t.Errorf("pipeline of %s on the third node: %+v, %v", user, p, err)
		}
	}
	if r := s.Got(tracy, "call", 1); !cmp.Equal(e2e.Keys(r.Work), []string{"2"}) {
		t.Errorf("for another task Tracy got %v; want Oliver's first", e2e.Keys(r.Work))
	}
	s.disposition(his.Work, hers.Work)
	s.InOrder("verify")
	s.Promises()
}

// twoNumbers returns the two numbers of each request's story.
func (s *site) twoNumbers() []string {
	s.T.Helper()
	return column[string](s, `select user_name || ' ' || requested || ' ' || assigned from getwork.work_requested order by id`)
}

// told clicks, and expects an answer that says to ask again.
func (s *site) told(who cluster.Client, count int) assign.Request {
	s.T.Helper()
	r, a, err := who.GetWork(s.T.Context(), "verify", count)
	if err != nil || a.Status != 202 || a.Header.Get("Retry-After") != "5" || a.Header.Get("Location") != fmt.Sprint("/api/v1/requests/", r.ID) {
		s.T.Fatalf("%s is told %d %v %s, %v; want 202, to ask again in 5 s, and where", who.User, a.Status, a.Header, a.Body, err)
	}
	return r
}

// asksAgain reads a request on every node while the query runs. That reads only work_requested, so it is answered at
// once. The count of executions shows that it starts no query.
func (s *site) asksAgain(r assign.Request) {
	s.T.Helper()
	for i := range 9 {
		still := s.Standstill()
		now, a, err := s.As(r.User, i%3).Request(s.T.Context(), r.ID)
		if err != nil || a.Status != 200 || now.State != assign.Pending || now.Requested != 3 || now.Assigned != 0 || a.Header.Get("Retry-After") == "" {
			s.T.Fatalf("%s asks again: %d %s, %v", r.User, a.Status, a.Body, err)
		}
		if a.Took-still() > time.Second {
			s.T.Errorf("asking again took %v", a.Took)
		}
	}
}

// disposition lets go of loans in every way. Loans that are put off or held are not handed out; loans that have come
// due, or were completed and still match, are.
func (s *site) disposition(his, hers []assign.Work) {
	s.T.Helper()
	const putOff = 15 * time.Second // Peter clicks before that
	oliver, tracy := s.As("oliver", 1), s.As("tracy", 2)
	s.Exec(`update pace set seconds = 0.1`)
	s.Exec(`update loan set verified = true where id = 2`)
	s.Disposed(oliver, his[0], "complete", "")                     // 2 does not match any more
	s.Disposed(oliver, his[1], "complete", "")                     // 3 still does
	later := s.Disposed(oliver, his[2], "return", putOff.String()) // 4
	s.Disposed(tracy, hers[0], "return", "72h")                    // 5
	s.Disposed(tracy, hers[1], "never", "")                        // 6; she keeps 7
	if _, a, err := tracy.Dispose(s.T.Context(), hers[2].ID, "return", "73h"); err != nil || a.Status != 400 {
		s.T.Errorf("put off for more than 72 hours: %d %s, %v", a.Status, a.Body, err)
	}
	if r := s.Got(s.As("peter", 0), "verify", 5); !cmp.Equal(e2e.Keys(r.Work), []string{"3", "8", "9", "10", "11"}) {
		s.T.Errorf("Peter got %v; want 3, which was completed and still matches, and 8 to 11", e2e.Keys(r.Work))
	}
	s.Await("loan 4 is due", 2*putOff, `select clock_timestamp() >= $1`, later.AvailableAt)
	if r := s.Got(s.As("quinn", 1), "verify", 2); !cmp.Equal(e2e.Keys(r.Work), []string{"4", "12"}) {
		s.T.Errorf("Quinn got %v; want 4, which has come due, and 12", e2e.Keys(r.Work))
	}
	var rest []string // nine are left, of which loan 1 is third from the end
	for _, want := range []struct {
		user  string
		count int
		state assign.State
	}{{"ruth", 5, assign.Assigned}, {"sam", 5, assign.Partial}, {"tom", 2, assign.None}} {
		r := s.Got(s.As(want.user, 2), "verify", want.count)
		if r.State != want.state || r.Requested != r.Assigned || r.Assigned != len(r.Work) {
			s.T.Errorf("%s: %+v", want.user, r)
		}
		rest = append(rest, e2e.Keys(r.Work)...)
	}
	if want := []string{"13", "14", "15", "16", "17", "18", "1", "19", "20"}; !cmp.Equal(rest, want) {
		s.T.Errorf("the rest came as %v; want %v", rest, want)
	}
}
