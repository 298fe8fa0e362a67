package patroni

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"
)

// api is the client for Patroni's API; a frozen Patroni doesn't answer, and is skipped.
var api = http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// member is a host as Patroni sees it.
type member struct {
	Name  string `json:"name"`
	Role  string `json:"role"` // leader, replica, sync_standby
	State string `json:"state"`
}

// members asks one host's Patroni about all hosts.
func (h *Host) members(ctx context.Context) ([]member, error) {
	var body struct {
		Members []member `json:"members"`
	}
	text, err := h.ask(ctx, 2*time.Second, http.MethodGet, "/cluster", nil)
	if err == nil {
		err = json.Unmarshal(text, &body)
	}
	return body.Members, err
}

// ask makes one call of a Patroni's REST API. It returns an error for any answer other than 200.
func (h *Host) ask(ctx context.Context, within time.Duration, method, path string, body any) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	payload, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://"+address(h.api)+path, bytes.NewReader(payload))
	if err != nil {
		return nil, err
	}
	answer, err := api.Do(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s at %s: %d %s", method, path, h.Name, answer.StatusCode, text)
	}
	return text, err
}

// primary returns the host that says that it is the primary and can be written to, or nil if there is none now.
func (c *Cluster) primary(ctx context.Context) *Host {
	for _, h := range c.Hosts {
		if _, err := h.ask(ctx, time.Second, http.MethodGet, "/primary", nil); err == nil && h.writes(ctx) {
			return h
		}
	}
	return nil
}

// writes reports whether a transaction commits on the host; under synchronous replication that needs a standby, too.
func (h *Host) writes(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, h.URL("postgres"))
	if err != nil {
		return false
	}
	defer conn.Close(ctx)
	var standby bool
	err = conn.QueryRow(ctx, `select pg_is_in_recovery()`).Scan(&standby)
	return err == nil && !standby
}

// Primary waits until one host is the primary, and returns it.
func (c *Cluster) Primary(ctx context.Context) *Host {
	c.t.Helper()
	var h *Host
	c.await(ctx, "a host is the primary", func() bool { h = c.primary(ctx); return h != nil })
	return h
}

// Standby returns the host that takes over in a hard fail-over. Under synchronous replication it has every commit.
func (c *Cluster) Standby(ctx context.Context) *Host {
	c.t.Helper()
	want := "replica"
	if c.options.Synchronous {
		want = "sync_standby"
	}
	var found *Host
	c.await(ctx, "there is a "+want, func() bool {
		for _, h := range c.Hosts {
			members, err := h.members(ctx)
			for _, m := range members {
				if err == nil && m.Role == want && m.State == "running" {
					found = c.host(m.Name)
					return true
				}
			}
		}
		return false
	})
	return found
}

func (c *Cluster) host(name string) *Host {
	for _, h := range c.Hosts {
		if h.Name == name {
			return h
		}
	}
	return nil
}

// AwaitWhole waits until all three hosts run: one primary, and standbys that follow it, one of them synchronously if
// Options ask for that.
func (c *Cluster) AwaitWhole(ctx context.Context) {
	c.t.Helper()
	c.await(ctx, "all hosts run", func() bool {
		primary := c.primary(ctx)
		if primary == nil {
			return false
		}
		members, err := primary.members(ctx)
		synchronous, running := 0, 0
		for _, m := range members {
			if m.State == "running" || m.State == "streaming" {
				running++
			}
			if m.Role == "sync_standby" {
				synchronous++
			}
		}
		return err == nil && running == len(c.Hosts) && (synchronous == 1) == c.options.Synchronous && primary.followed(ctx) == len(c.Hosts)-1
	})
}

// followed returns how many standbys stream from a host.
func (h *Host) followed(ctx context.Context) (n int) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, h.URL("postgres"))
	if err != nil {
		return 0
	}
	defer conn.Close(ctx)
	_ = conn.QueryRow(ctx, `select count(*) from pg_stat_replication where state = 'streaming'`).Scan(&n)
	return n
}

// Switchover makes a standby the primary, as an operator does before maintenance, and returns when Patroni says that it
// is.
func (c *Cluster) Switchover(ctx context.Context) {
	c.t.Helper()
	from, to := c.Primary(ctx), c.Standby(ctx)
	body := map[string]string{"leader": from.Name, "candidate": to.Name}
	if _, err := from.ask(ctx, time.Minute, http.MethodPost, "/switchover", body); err != nil {
		c.t.Fatal(err)
	}
}

// await polls until a condition holds.
func (c *Cluster) await(ctx context.Context, what string, so func() bool) {
	c.t.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for !so() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			c.t.Fatalf("not in time: %s: %v\n%s", what, context.Cause(ctx), c.State(context.WithoutCancel(ctx)))
		}
	}
}
