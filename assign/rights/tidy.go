package rights

import (
	"context"
	"time"
)

const tidyEvery = 10 * time.Minute

// What ended is kept for 30 days, so that somebody can ask how. Tokens go first: those for terminals refer to their session.
var tidies = []string{
	`delete from getwork.token where ctid = any(array(
		select ctid from getwork.token where least(ended_at, expires_at) < clock_timestamp() - interval '30 days' limit 1000 for update skip locked))`,
	`delete from getwork.session s where s.ctid = any(array(
		select ctid from getwork.session e where least(e.ended_at, e.ends_at) < clock_timestamp() - interval '30 days'
		  and not exists (select from getwork.token t where t.parent = e.id) limit 1000 for update skip locked))`,
	`delete from getwork.once where ctid = any(array(
		select ctid from getwork.once where until < clock_timestamp() limit 1000 for update skip locked))`,
}

// tidy removes what is over for long.
func (w *Watch) tidy(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for _, statement := range tidies {
		if _, err := w.DB.Exec(ctx, w.SQL(statement)); err != nil {
			w.Log.Warn("remove sessions and tokens that ended long ago", "error", err)
			return
		}
	}
}
