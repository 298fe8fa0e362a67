package engine

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"getwork/assign"
	"getwork/assign/audit"
	"getwork/assign/pg"
	"getwork/notify"
)

// transact runs f in a transaction, as [pg.Transact] does.
func (e *Engine) transact(ctx context.Context, f func(pgx.Tx) error) error {
	return pg.Transact(ctx, e.api, f)
}

// write executes one statement that writes, in a transaction of its own. By itself the statement would run at the server's
// default isolation level. At a higher one it fails when it meets another session's change, instead of waiting and reading
// again.
func (e *Engine) write(ctx context.Context, statement string, args ...any) (tag pgconn.CommandTag, err error) {
	err = e.transact(ctx, func(tx pgx.Tx) error {
		tag, err = tx.Exec(ctx, e.SQL(statement), args...)
		return err
	})
	return tag, err
}

// transactAnnouncing is transact for changes that others must hear of; f returns what it changed. Unless many such
// transactions come, the announcement is part of the transaction, so that no death can separate them.
func (e *Engine) transactAnnouncing(ctx context.Context, f func(pgx.Tx) ([]notify.Change, error)) error {
	var told *notify.Telling
	err := e.transact(ctx, func(tx pgx.Tx) error {
		told.End(false) // f begins again
		told = nil
		changes, err := f(tx)
		if err != nil {
			return err
		}
		told = e.Announce.TellChanges(changes...)
		if told.Payload != "" {
			if _, err := tx.Exec(ctx, notify.NotifySQL, e.Channel, told.Payload); err != nil {
				return fmt.Errorf("announce: %w", err)
			}
		}
		return nil
	})
	told.End(err == nil)
	return err
}

// queueAnnouncement adds the round's one NOTIFY as the last statement, so that it is sent if and only if the transaction
// commits. quick: the round answers only the clicks that started it, whose callers learn the result without it. If such rounds
// are frequent, the announcer announces them together.
func (r *round) queueAnnouncement(wrote *pg.Writes, quick bool) {
	r.announced = true
	r.telling.End(false) // left from a plan that was given up
	r.telling = nil
	payload := ""
	switch {
	case !quick || r.e.announcesAtOnce(r.task):
		payload = r.announcement(r.run).Encode()
	case len(r.answered) > 0:
		r.telling = r.e.Announce.Tell(r.announcement(r.run), notify.Change{Task: r.task, Rounds: []int64{r.id}})
		payload = r.telling.Payload
	}
	if payload != "" {
		wrote.Queue(pg.AnyNumber, notify.NotifySQL, r.e.Channel, payload)
	}
}

// auditor writes the audit of what managers do. Its row is the last statement of the act's transaction before the
// announcement: whoever has the end of the audit's chain keeps every other act waiting, and so must wait for nothing.
type auditor struct{ *Engine }

func (a auditor) write(ctx context.Context, tx pgx.Tx, act audit.Act) error {
	if a.Audit == nil {
		return nil
	}
	return a.Audit.Write(ctx, tx, act)
}

// texts are the SHA-256 of what managers let the database execute. The versions of the task keep the texts themselves.
type texts struct {
	Query   *string `json:"query_sha256"`
	Recheck *string `json:"recheck_sha256"`
}

func textsOf(s *assign.Settings) texts { return texts{sumOf(s.Query), sumOf(s.Recheck)} }

func sumOf(q assign.Query) *string {
	if q == "" {
		return nil
	}
	sum := sha256.Sum256([]byte(q))
	text := hex.EncodeToString(sum[:])
	return &text
}

// preview writes, in a transaction of its own, that somebody is about to preview a query of a task; of a task that does not
// exist yet, if it has no name.
func (a auditor) preview(ctx context.Context, task string, s *assign.Settings) error {
	if a.Audit == nil {
		return nil
	}
	return a.Audit.WriteAlone(ctx, audit.Act{Act: "task.preview", Object: task, Detail: texts{Query: sumOf(s.Query)}})
}

// changed describes that a task was changed from before to after, as its version n; as it was in version restored, if that
// is not 0.
func changed(before, after *assign.Settings, n, restored int) audit.Act {
	detail := struct {
		Version  int      `json:"version"`
		Restored int      `json:"restored,omitempty"`
		Changed  []string `json:"changed"` // the names of the settings
		Name     string   `json:"name,omitempty"`
		texts
	}{Version: n, Restored: restored, Changed: differences(before, after), texts: textsOf(after)}
	if after.Name != before.Name {
		detail.Name = after.Name
	}
	act := "task.update"
	switch {
	case restored != 0:
		act = "task.restore"
	case len(detail.Changed) != 1 || detail.Changed[0] != "paused":
	case after.Paused:
		act = "task.pause"
	default:
		act = "task.resume"
	}
	return audit.Act{Act: act, Object: before.Name, Detail: detail}
}

// differences returns the names of the settings that are not the same.
func differences(one, other *assign.Settings) (names []string) {
	fields := func(s *assign.Settings) (m map[string]json.RawMessage) {
		b, _ := json.Marshal(s)
		_ = json.Unmarshal(b, &m)
		return m
	}
	was, is := fields(one), fields(other)
	names = []string{}
	for _, name := range slices.Sorted(maps.Keys(is)) {
		if !bytes.Equal(was[name], is[name]) {
			names = append(names, name)
		}
	}
	return names
}

// nameTaken returns the error of a transaction that wrote a task's name. A name that is taken is refused with [assign.Exists]. Only
// the unique index decides that: two managers may take a name at the same moment, and neither sees the other's.
func nameTaken(err error, name, doing string) error {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) && pgErr.Code == "23505" && pgErr.ConstraintName == "task_state_name" {
		return assign.Refuse(assign.Exists, "there is a task %q already; choose another name, or update that one", name)
	}
	var refusal *assign.Refusal
	if errors.As(err, &refusal) {
		return refusal
	}
	return fmt.Errorf("%s: %w", doing, err)
}
