package rights

import (
	"bytes"
	"encoding/base64"
	"net/netip"
	"testing"
	"time"

	"getwork/assign"
)

// A screen's link is good once and for an hour. Until it is opened its code is no cookie; afterwards the browser has a session that
// shows counts, and lost the one that it had. It is listed, audited and ended like others. What the table has opens nothing.
func TestWall(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	link := func(life time.Duration) (code string, made NewWall) {
		t.Helper()
		code, made, err := d.CreateWall(t.Context(), "lobby", life)
		if err != nil {
			t.Fatal(err)
		}
		return code, made
	}
	open := func(code, former string) (Begun, error) {
		return d.OpenWall(t.Context(), code, former, netip.MustParseAddr("10.0.0.7"), "a browser")
	}
	code, made := link(24 * time.Hour)
	if left := time.Until(made.OpensUntil); left < 50*time.Minute || left > 61*time.Minute || time.Until(made.EndsAt) < 23*time.Hour {
		t.Errorf("%+v", made)
	}
	if _, err := d.session(t, code); why(err) != WhyUnknown {
		t.Error("the code as a cookie:", why(err))
	}
	var id []byte
	if err := d.db.QueryRow(t.Context(), "select id from getwork.session where public_id = $1", made.ID).Scan(&id); err != nil || bytes.Contains([]byte(base64.RawURLEncoding.EncodeToString(id)), []byte(code)) {
		t.Errorf("the code is stored: %v", err)
	}
	mia := d.logIn(t, "mia", assign.RoleManager, "")
	begun, err := open(code, mia)
	if err != nil {
		t.Fatal(err)
	}
	r, err := d.session(t, begun.Cookie)
	if err != nil || !r.Wall || r.Role != assign.RoleObserver || r.Admin || r.User != "lobby" || !r.IdleAt.IsZero() || r.Left > 24*time.Hour || r.Left < 23*time.Hour {
		t.Errorf("%+v %v", r, err)
	}
	if _, err := d.session(t, mia); why(err) != WhyEnded {
		t.Error("the browser's former session:", why(err))
	}
	if _, err := open(code, ""); why(err) != WhyUnknown {
		t.Error("a second time:", why(err))
	}
	listed, err := d.Sessions(t.Context(), "lobby")
	if err != nil || len(listed) != 1 || !listed[0].Wall || listed[0].OpensUntil != nil || *listed[0].Address != "10.0.0.7" {
		t.Errorf("%+v %v", listed, err)
	}
	if n := d.count(t, "select count(*) from getwork.audit where act in ('wall.create', 'wall.open') and object = $1", made.ID); n != 2 {
		t.Errorf("%d rows of the audit", n)
	}
	if n := d.count(t, "select count(*) from getwork.audit where act = 'session.end' and object = 'mia' and actor is null"); n != 1 {
		t.Errorf("the former session's end is audited %d times, want once, by a screen", n)
	}
	if _, err := d.End(t.Context(), Ending{By: "admin", PublicID: made.ID}); err != nil {
		t.Fatal(err)
	}
	if _, err := d.session(t, begun.Cookie); why(err) != WhyEnded {
		t.Error("after its end:", why(err))
	}

	late, shown := link(24 * time.Hour)
	d.exec(t, "update getwork.session set opens_until = clock_timestamp() where public_id = $1", shown.ID)
	ended, shown := link(24 * time.Hour)
	if _, err := d.End(t.Context(), Ending{By: "admin", PublicID: shown.ID}); err != nil {
		t.Fatal(err)
	}
	blocked, _ := link(time.Minute)
	if _, err := d.Block(t.Context(), "lobby", assign.UserChange{Blocked: true}); err != nil {
		t.Fatal(err)
	}
	for what, code := range map[string]string{"after an hour": late, "ended before": ended, "blocked": blocked, "made up": code[1:] + "A", "no code": "x"} {
		if _, err := open(code, ""); why(err) != WhyUnknown {
			t.Errorf("%s: %q", what, why(err))
		}
	}
	for user, life := range map[string]time.Duration{"a": 721 * time.Hour, "b": time.Second, "mia": time.Hour, "c  d": time.Hour} {
		if _, _, err := d.CreateWall(t.Context(), user, life); err == nil {
			t.Errorf("a screen called %q for %v", user, life)
		}
	}
}

// Of many browsers that open one link at once, one gets it.
func TestWallOnce(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	code, _, err := d.CreateWall(t.Context(), "wall", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan error)
	const browsers = 8
	for range browsers {
		go func() {
			_, err := d.OpenWall(t.Context(), code, "", netip.Addr{}, "")
			got <- err
		}()
	}
	opened := 0
	for range browsers {
		switch err := <-got; {
		case err == nil:
			opened++
		case why(err) != WhyUnknown:
			t.Error(err)
		}
	}
	if opened != 1 {
		t.Errorf("%d browsers opened it", opened)
	}
}
