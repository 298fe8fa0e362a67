package engine

import (
	"context"
	"fmt"
	"getwork/assign"
	"getwork/notify"

	"github.com/jackc/pgx/v5"
)

const cancelRequest = `
update getwork.work_requested
set state = 'cancelled', requested = 0, reason = null, completed_at = clock_timestamp()
where id = $1 and state = 'pending'`

// Cancel ends a pending request with nothing; repeating it changes nothing. A round that has read the request
// holds its row until it commits, so that exactly one of the two ends it: [NotPending] says that the round did.
func (e *Engine) Cancel(ctx context.Context, id int64, by assign.Holder, any bool) (assign.Request, error) {
	r, err := e.Records.Request(ctx, id, by, any)
	if err != nil {
		return assign.Request{}, err
	}
	var cancelled bool
	err = e.transactTelling(ctx, func(tx pgx.Tx) ([]notify.Change, error) {
		tag, err := tx.Exec(ctx, e.SQL(cancelRequest), id)
		if cancelled = tag.RowsAffected() > 0; !cancelled {
			return nil, err
		}
		return []notify.Change{{Task: r.TaskID, Requests: []int64{id}}}, err
	})
	if err != nil {
		return assign.Request{}, fmt.Errorf("cancel request: %w", err)
	}
	if cancelled {
		e.countEnd(assign.Cancelled, 1)
		e.poke(r.TaskID)
	}
	r, err = e.Records.Request(ctx, id, by, any)
	if err == nil && r.State != assign.Cancelled {
		err = assign.Refuse(assign.NotPending, "request %d has ended as %s; what it got is in your pipeline", id, r.State)
	}
	return r, err
}
