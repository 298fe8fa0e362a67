package torture

import (
	"context"
	"math/rand/v2"
	"net/http"
	"time"

	"getwork/cmd/lab/torture/history"
)

// The faults of rights: what people came in with ends, or allows something else. They are no excuse for anything, so the
// history has them as calls, and not as faults.

// admin is the administrator, for one fault.
func (s *storm) admin(f planned) *caller {
	return &caller{stage: s.stage, who: history.Who{User: "boss"}, role: "manager", rng: rand.New(rand.NewPCG(f.chance, 1)), pass: s.logIns.pass("boss")}
}

// victim returns somebody of whom something is to end, and their credential.
func (s *storm) victim(f planned, kinds ...string) (*pass, badge) {
	for i := range s.logIns.users {
		p := s.logIns.passes[s.logIns.users[(int(f.chance%1_000_000)+i)%len(s.logIns.users)]]
		for _, kind := range kinds {
			if p.kind != kind || !p.mu.TryLock() {
				continue
			}
			has := p.now
			p.mu.Unlock()
			if has.name != "" {
				return p, has
			}
		}
	}
	return nil, badge{}
}

// tries is how often an act of rights is tried: nodes may be broken.
const tries = 4

// ends makes one call that ends something, and counts it as a fault if it was done.
func (s *storm) ends(f planned, c *caller, call history.Call, r request) bool {
	for range tries {
		if done := c.do(s.stage.ctx, call, r); done.Status/100 == 2 {
			s.count(f.kind.Name)
			return true
		}
		if !s.pause(200 * time.Millisecond) {
			break
		}
	}
	s.skip()
	return false
}

func (s *storm) endSessions(f planned) {
	p, _ := s.victim(f, session)
	if p == nil {
		s.skip()
		return
	}
	s.ends(f, s.admin(f), history.Call{Kind: history.EndAll, To: p.user}, request{method: http.MethodDelete, path: "/api/v1/sessions?user=" + p.user})
}

func (s *storm) endToken(f planned) {
	p, has := s.victim(f, personal, service)
	if p == nil {
		s.skip()
		return
	}
	s.ends(f, s.admin(f), history.Call{Kind: history.EndToken, To: has.name}, request{method: http.MethodDelete, path: "/api/v1/tokens/" + has.name[2:]})
}

func (s *storm) logOut(f planned) {
	p, has := s.victim(f, session)
	if p == nil {
		s.skip()
		return
	}
	c := s.admin(f)
	c.who.User, c.pass = p.user, p
	s.ends(f, c, history.Call{Kind: history.LogOut, To: has.name}, request{method: http.MethodPost, path: "/auth/logout", as: &has})
}

func (s *storm) logInAgain(f planned) {
	p, _ := s.victim(f, session)
	if p == nil || p.again(s.stage.ctx) != nil {
		s.skip()
		return
	}
	s.count(f.kind.Name)
}

// logOutThere ends somebody's sessions at the provider, which sends its messages to one node, once.
func (s *storm) logOutThere(f planned) {
	p, _ := s.victim(f, session)
	if p == nil {
		s.skip()
		return
	}
	_ = s.logIns.idp.LogOut(s.stage.ctx, p.account()) // a message that is lost is not sent again
	s.count(f.kind.Name)
}

func (s *storm) block(f planned) {
	p, _ := s.victim(f, session, personal, service)
	if p == nil {
		s.skip()
		return
	}
	c, path := s.admin(f), "/api/v1/users/"+p.user
	s.ends(f, c, history.Call{Kind: history.Block, To: p.user}, request{method: http.MethodPatch, path: path, body: map[string]any{"blocked": true}})
	s.pause(f.lasts)
	for s.stage.ctx.Err() == nil { // also if no answer came to the block
		call := c.do(s.stage.ctx, history.Call{Kind: history.Unblock, To: p.user}, request{method: http.MethodPatch, path: path, body: map[string]any{"blocked": false}})
		if call.Status == http.StatusOK {
			return
		}
		wait(s.stage.ctx, 200*time.Millisecond)
	}
}

// rebind gives somebody's name to another account, which they have from then on.
func (s *storm) rebind(f planned) {
	p, _ := s.victim(f, session, personal)
	if p == nil {
		s.skip()
		return
	}
	p.mu.Lock() // they don't log in meanwhile
	defer p.mu.Unlock()
	if len(p.subs) < 2 {
		s.skip()
		return
	}
	c := s.admin(f)
	for s.stage.ctx.Err() == nil { // also if no answer came
		call := c.do(s.stage.ctx, history.Call{Kind: history.Rebind, To: p.user},
			request{method: http.MethodPost, path: "/api/v1/users/" + p.user + "/rebind", body: map[string]any{"iss": s.logIns.idp.Issuer, "sub": p.subs[1]}})
		if call.Status == http.StatusOK {
			p.subs = p.subs[1:]
			s.count(f.kind.Name)
			return
		}
		wait(s.stage.ctx, 200*time.Millisecond)
	}
}

// age makes the provider's word about somebody's sessions older, so that nodes ask it again.
func (s *storm) age(user, by string) {
	const older = `
update getwork.session s set refreshed_at = refreshed_at - $2::text::interval, refreshing_until = null
from getwork.principal p
where p.id = s.principal and p.name = $1 and s.ended_at is null and s.refreshing_until is null`
	_ = s.execute(s.stage.ctx, older, user, by) // the database may be away
}

// regroup takes somebody out of a group at the provider, and puts them back later.
func (s *storm) regroup(f planned) {
	p, _ := s.victim(f, session)
	if p == nil {
		s.skip()
		return
	}
	for _, groups := range [][]string{{"workers"}, {"workers", deskGroup}} {
		s.logIns.idp.SetGroups(p.account(), groups)
		s.age(p.user, "11 minutes")
		s.pause(f.lasts)
	}
	s.count(f.kind.Name)
}

// away closes the provider. It is asked about some sessions meanwhile, of which some were confirmed too long ago.
func (s *storm) away(f planned) {
	if !s.closing.TryLock() {
		s.skip()
		return
	}
	defer s.closing.Unlock()
	if err := s.logIns.idp.Close(); err != nil {
		s.skip()
		return
	}
	for i := range uint64(4) {
		next := f
		next.chance = f.chance + i
		if p, _ := s.victim(next, session); p != nil {
			s.age(p.user, []string{"11 minutes", "2 hours"}[i%2])
		}
	}
	s.count(f.kind.Name)
	s.pause(f.lasts)
	for s.logIns.idp.Reopen() != nil && s.stage.ctx.Err() == nil {
		wait(s.stage.ctx, 100*time.Millisecond)
	}
}

// haunt shows a credential that has ended, some seconds later: to read, and to click.
func (p *person) haunt(ctx context.Context) {
	old := p.pass.ended()
	if old.name == "" {
		return
	}
	p.agenda.in(2*time.Second+p.pause(2*time.Second), func() {
		if p.chance(50) {
			p.do(ctx, history.Call{Kind: history.Pipeline}, request{method: http.MethodGet, path: "/api/v1/pipeline", as: &old})
			return
		}
		w := wish{job: p.crowd.job(p.rng), count: 1}
		p.do(ctx, history.Call{Kind: history.Click, Task: w.job.name, Count: w.count},
			request{method: http.MethodPost, path: "/api/v1/tasks/" + w.job.name + "/requests", body: map[string]any{"count": w.count}, as: &old})
	})
}
