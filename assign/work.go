package assign

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
)

// Work is one item of one task held by one holder, as the contract shows it.
type Work struct {
	ID             int64           `json:"id,string"`
	Task           string          `json:"task"`
	Item           string          `json:"item"`
	User           string          `json:"user"`
	Instance       string          `json:"instance,omitempty"`
	Slot           int             `json:"slot"`
	Details        json.RawMessage `json:"details"`
	AssignedAt     time.Time       `json:"assigned_at"`
	LeaseExpiresAt *time.Time      `json:"lease_expires_at"`
	Attempt        int             `json:"attempt"`
	State          string          `json:"state"` // held, completed, returned, never, failed, expired, reassigned
	ClosedAt       *time.Time      `json:"closed_at"`
	AvailableAt    *time.Time      `json:"available_at"`
	Note           *string         `json:"note"`

	TaskID int64 `json:"-"`
}

// Holder is who holds it, or held it.
func (w *Work) Holder() Holder { return Holder{w.User, w.Instance} }

// workColumns are read by scanWork; s is task_state, w work.
const workColumns = `w.id, s.name, w.item, w.user_name, w.instance, w.slot, w.details, w.assigned_at, w.lease_expires_at,
  w.attempt, w.state, w.closed_at, w.available_at, w.note, w.task_id`

// scanWork reads workColumns, and what follows them into also.
func scanWork(row pgx.CollectableRow, also ...any) (Work, error) {
	var w Work
	var details []byte
	into := []any{&w.ID, &w.Task, &w.Item, &w.User, &w.Instance, &w.Slot, &details, &w.AssignedAt, &w.LeaseExpiresAt,
		&w.Attempt, &w.State, &w.ClosedAt, &w.AvailableAt, &w.Note, &w.TaskID}
	err := row.Scan(append(into, also...)...)
	w.Details = details
	w.AssignedAt = w.AssignedAt.UTC()
	w.LeaseExpiresAt, w.ClosedAt, w.AvailableAt = utc(w.LeaseExpiresAt), utc(w.ClosedAt), utc(w.AvailableAt)
	return w, err
}

// Pipeline is all that a holder holds, and what it waits for.
type Pipeline struct {
	Work     []Work    `json:"work"`
	Requests []Request `json:"requests"`
}

const selectPipelineWork = `
select ` + workColumns + `
from getwork.work w join getwork.task_state s using (task_id)
where w.user_name = any($1::text[]) and w.state = 'held'
order by w.id`

const selectPipelineRequests = `
select ` + requestColumns + `
from getwork.work_requested r join getwork.task_state s using (task_id)
where r.user_name = any($1::text[]) and r.state = 'pending'
order by r.id`

// Pipeline reads what one holder holds and waits for.
func (e *Engine) Pipeline(ctx context.Context, holder Holder) (Pipeline, error) {
	all, err := e.pipelines(ctx, []Holder{holder})
	return all[holder], err
}

// UserPipeline reads what a user holds and waits for, he himself and all instances of his.
func (e *Engine) UserPipeline(ctx context.Context, user string) (Pipeline, error) {
	works, requests, err := e.held(ctx, []string{user})
	return Pipeline{Work: append([]Work{}, works...), Requests: append([]Request{}, requests...)}, err
}

// pipelines reads those of many holders at once; each of them is in the answer.
func (e *Engine) pipelines(ctx context.Context, holders []Holder) (map[Holder]Pipeline, error) {
	pipelines := make(map[Holder]Pipeline, len(holders))
	users := make([]string, 0, len(holders))
	for _, h := range holders {
		pipelines[h] = Pipeline{Work: []Work{}, Requests: []Request{}}
		users = append(users, h.User)
	}
	works, requests, err := e.held(ctx, users)
	if err != nil {
		return pipelines, err
	}
	for _, w := range works {
		if p, ok := pipelines[w.Holder()]; ok {
			p.Work = append(p.Work, w)
			pipelines[w.Holder()] = p
		}
	}
	for _, r := range requests {
		if p, ok := pipelines[r.Holder()]; ok {
			p.Requests = append(p.Requests, r)
			pipelines[r.Holder()] = p
		}
	}
	return pipelines, nil
}

// held reads what users hold and wait for, whatever their instances.
func (e *Engine) held(ctx context.Context, users []string) (works []Work, requests []Request, err error) {
	var batch pgx.Batch
	batch.Queue(e.SQL(selectPipelineWork), users)
	batch.Queue(e.SQL(selectPipelineRequests), users)
	results := e.api.SendBatch(ctx, &batch)
	defer results.Close()
	rows, err := results.Query()
	if err != nil {
		return nil, nil, fmt.Errorf("read pipeline: %w", err)
	}
	if works, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (Work, error) { return scanWork(row) }); err != nil {
		return nil, nil, fmt.Errorf("read pipeline: %w", err)
	}
	if rows, err = results.Query(); err != nil {
		return nil, nil, fmt.Errorf("read pipeline: %w", err)
	}
	if requests, err = pgx.CollectRows(rows, readRequest); err != nil {
		return nil, nil, fmt.Errorf("read pipeline: %w", err)
	}
	return works, requests, nil
}

const selectWork = `
select ` + workColumns + `, w.after is not distinct from $2 * interval '1 microsecond'
from getwork.work w join getwork.task_state s using (task_id)
where w.id = $1`

// Disposition is how a holder lets go of work.
type Disposition struct {
	Outcome string    `json:"outcome"`         // complete, return or never
	After   *Duration `json:"after,omitempty"` // of a return: 0 to 72 hours until it may be handed out again
	Note    *string   `json:"note,omitempty"`  // at most 4 KiB
}

// closedAs maps an outcome to the state that it leaves.
var closedAs = map[string]string{"complete": "completed", "return": "returned", "never": "never"}

const maxAfter = Duration(72 * time.Hour)

func (d Disposition) check() error {
	if _, ok := closedAs[d.Outcome]; !ok {
		return refuseField("outcome", `outcome is "complete", "return" or "never", not %q`, d.Outcome)
	}
	if d.Outcome == "return" && d.After == nil {
		return refuseField("after", `a return says after how long the item may come back: "after" from "0s" to "72h"`)
	}
	if d.Outcome != "return" && d.After != nil {
		return refuseField("after", `"after" belongs to the outcome "return"; leave it out of %q`, d.Outcome)
	}
	if d.After != nil && (*d.After < 0 || *d.After > maxAfter) {
		return refuseField("after", `"after" is from "0s" to "72h", not %q`, d.After.String())
	}
	if d.Note != nil && (!utf8.ValidString(*d.Note) || strings.ContainsRune(*d.Note, 0)) {
		return refuseField("note", "a note is UTF-8 text without NUL")
	}
	if d.Note != nil && len(*d.Note) > 4096 {
		return refuseField("note", "a note has at most 4096 bytes; this one has %d", len(*d.Note))
	}
	return nil
}

// closeWork names what it closes: the work, still held, its lease not over. No row: it was lost meanwhile.
const closeWork = `
update getwork.work
set state = $2, closed_at = clock_timestamp(), closed_by = $3, closed_xid = pg_current_xact_id(), note = $5,
    after = $4 * interval '1 microsecond', available_at = clock_timestamp() + $4 * interval '1 microsecond'
where id = $1 and state = 'held' and (lease_expires_at is null or lease_expires_at > clock_timestamp())`

// Dispose closes held work: by its holder, or by a manager (any). Doing the same again changes nothing.
func (e *Engine) Dispose(ctx context.Context, id int64, d Disposition, by Holder, any bool) (Work, error) {
	if err := d.check(); err != nil {
		return Work{}, err
	}
	w, _, err := e.work(ctx, id, d.After)
	if err != nil {
		return Work{}, err
	}
	if !any && w.Holder() != by {
		return Work{}, noWork(id)
	}
	tag, err := e.write(ctx, closeWork, id, closedAs[d.Outcome], by.User, microsOf(d.After), d.Note)
	if err != nil {
		return Work{}, fmt.Errorf("close work: %w", err)
	}
	w, sameAfter, err := e.work(ctx, id, d.After)
	if err != nil {
		return Work{}, err
	}
	switch {
	case tag.RowsAffected() > 0:
		e.Announce.Work(w.TaskID, id)
		return w, nil
	case w.State == closedAs[d.Outcome] && sameAfter:
		return w, nil
	case w.State == "held", w.State == "expired":
		return Work{}, Refuse(LeaseLost, "the lease of work %d ran out; ask for work again", id)
	default:
		return Work{}, Refuse(AlreadyClosed, "work %d was closed as %s; it can't be changed any more", id, w.State)
	}
}

// work reads one row, and whether it was returned for just that long.
func (e *Engine) work(ctx context.Context, id int64, after *Duration) (w Work, sameAfter bool, err error) {
	rows, err := e.api.Query(ctx, e.SQL(selectWork), id, microsOf(after))
	if err != nil {
		return Work{}, false, fmt.Errorf("read work: %w", err)
	}
	w, err = pgx.CollectExactlyOneRow(rows, func(row pgx.CollectableRow) (Work, error) { return scanWork(row, &sameAfter) })
	if errors.Is(err, pgx.ErrNoRows) {
		return Work{}, false, noWork(id)
	}
	if err != nil {
		return Work{}, false, fmt.Errorf("read work: %w", err)
	}
	return w, sameAfter, nil
}

func noWork(id int64) error {
	return Refuse(NotFound, "no work %d of yours; GET /api/v1/pipeline lists what you hold", id)
}
