package patroni

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// State describes what each host says of itself, for the log of a test that waits in vain: its role, who follows it, for whom its
// commits wait, and what its sessions wait for.
func (c *Cluster) State(ctx context.Context) string {
	var text strings.Builder
	for _, h := range c.Hosts {
		fmt.Fprintf(&text, "%s: %s\n", h.Name, h.state(ctx))
		members, err := h.members(ctx)
		fmt.Fprintf(&text, "%s's Patroni: %v %v\n", h.Name, members, err)
	}
	return text.String()
}

func (h *Host) state(ctx context.Context) (state string) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, h.URL("postgres"))
	if err != nil {
		return err.Error()
	}
	defer conn.Close(ctx)
	if err := conn.QueryRow(ctx, `
select concat_ws('; ', 'standby: ' || pg_is_in_recovery(), 'synchronous_standby_names: ' || current_setting('synchronous_standby_names'),
  (select string_agg(concat_ws(' ', application_name, state, sync_state), ', ') from pg_stat_replication),
  (select string_agg(concat_ws(' ', n, state, wait_event), ', ') from
    (select count(*) n, state, wait_event from pg_stat_activity where backend_type = 'client backend' group by 2, 3) s))`).Scan(&state); err != nil {
		return err.Error()
	}
	return state
}
