package torture

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"getwork/cmd/lab/torture/history"
)

// everything is all tasks: beside the others one that requires reasons, a chain, and one whose items need something.
func everything(o Options) []job {
	n := func(least, most float64) nap { return nap{least, most, o.jumps()} }
	return slices.Concat(jobs(o), chain("4s", leaseOfInbox), []job{
		coded(leased(all(ranked("coded", "coded", 200, n(0.05, 0.2), map[string]any{"on_away": "release", "on_complete": map[string]any{"task": "second", "share": 0.2}})), "4s", 4*time.Second)),
		needy(n(0.05, 0.2)),
	})
}

// chain is an inbox whose items three people complete, if an item does not say another number, and one to which half of them goes on, to be
// looked at by others.
func chain(lease string, length time.Duration) []job {
	return []job{
		leased(job{name: "second", keys: "thrice", onward: true, settings: map[string]any{"name": "second"}}, lease, length),
		leased(job{name: "thrice", keys: "thrice", several: 3, settings: map[string]any{"name": "thrice", "done_by": 3, "conflicts_with": []string{"second"},
			"on_away": "release", "on_complete": map[string]any{"task": "second", "share": 0.5}}}, lease, length),
	}
}

// needy is a task half of whose items need something.
func needy(n nap) job {
	j := job{name: "skilled", keys: "skilled", items: 120, nap: n}.asked(`select 'skilled-' || to_char(n, 'FM000') as item, n as place,
  case n % 4 when 0 then array['french'] when 1 then array['french', 'german'] end as needs
from nap, generate_series(1, 120) n order by n`)
	j.settings["fresh_for"], j.settings["once"] = "1s", true
	return j
}

// abilities are what people can; each has some of them by turns.
var abilities = [][]string{{"french"}, {"french", "german"}, {}}

// teach says what each of the people can. Nobody works yet.
func (s *stage) teach(ctx context.Context) error {
	boss := s.teacher(rand.New(rand.NewPCG(s.o.Seed, drawsBeside)))
	for i := range s.o.Users {
		for tries := 10; !boss.teach(ctx, fmt.Sprintf("user-%03d", i), abilities[i%len(abilities)]); tries-- {
			if tries == 0 || ctx.Err() != nil {
				return errors.Join(ctx.Err(), errors.New("nobody can be taught anything"))
			}
			wait(ctx, 500*time.Millisecond)
		}
	}
	return nil
}

func (s *stage) teacher(rng *rand.Rand) *caller {
	return &caller{stage: s, who: history.Who{User: "boss"}, role: "manager", rng: rng}
}

// teach sets somebody's skills.
func (c *caller) teach(ctx context.Context, user string, can []string) bool {
	call := c.do(ctx, history.Call{Kind: history.Skills, To: user, Skills: can}, request{method: http.MethodPut, path: "/api/v1/people/" + user + "/skills", body: can})
	return call.Status == http.StatusOK
}

// both calls one after the other.
func both(one, two func(*stage, context.Context) error) func(*stage, context.Context) error {
	return func(s *stage, ctx context.Context) error {
		if err := one(s, ctx); err != nil {
			return err
		}
		return two(s, ctx)
	}
}
