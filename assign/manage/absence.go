package manage

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
	"getwork/assign/audit"
	"getwork/assign/engine"
	"getwork/assign/pg"
	"getwork/assign/records"
	"getwork/notify"
)

// maxAbsences is how many absences one import may have.
const maxAbsences = 1000

const (
	insertAbsence = `
insert into getwork.absence as a (user_name, from_at, until_at, substitute, created_by)
select $1, w.from_at, $3, $4, $5
from (select coalesce($2::timestamptz, clock_timestamp()) as from_at, clock_timestamp() as now offset 0) w
where $3::timestamptz is null or $3 > greatest(w.from_at, w.now)
returning ` + records.AbsenceColumns

	endAbsence = `
update getwork.absence a
set ended_at = clock_timestamp(), ended_by = $2
where a.id = $1 and a.ended_at is null and (a.until_at is null or a.until_at > clock_timestamp())
returning ` + records.AbsenceColumns
)

// EnterAbsence enters an absence of a user; if by is somebody else, that is audited. If it begins now, what the user waits for ends in
// the same transaction, and what they hold goes where its task says soon after.
func EnterAbsence(ctx context.Context, e *engine.Engine, user string, what assign.AbsenceWish, by string) (a assign.Absence, err error) {
	if err := assign.CheckUser(user); err != nil {
		return a, err
	}
	if err := checkAbsence(ctx, e, user, what, ""); err != nil {
		return a, err
	}
	err = change(ctx, e, user, func(tx pgx.Tx) ([]int64, *audit.Act, error) {
		a, err = one(tx.Query(ctx, e.SQL(insertAbsence), user, what.From, what.Until, what.Substitute, by))
		if errors.Is(err, pgx.ErrNoRows) {
			return nil, nil, assign.RefuseField("until", "until is over already; leave out an absence that is past, or name a later end")
		}
		detail := map[string]any{"absence": a.ID, "from": a.From, "until": a.Until, "substitute": a.Substitute}
		return []int64{a.ID}, act("absence.enter", user, by, detail), err
	})
	return a, err
}

// EndAbsence ends an absence that is in force or to come, and returns it; one that has ended stays as it is. asManager: it may be
// somebody else's, which is audited. [assign.NotFound]: there is none.
func EndAbsence(ctx context.Context, e *engine.Engine, id int64, by string, asManager bool) (a assign.Absence, err error) {
	found, err := e.Records.Absence(ctx, id)
	if err != nil {
		return a, err
	}
	if found == nil || found.User != by && !asManager {
		return a, assign.Refuse(assign.NotFound, "no absence %d; GET /api/v1/absences lists those in force and to come", id)
	}
	a = *found
	err = change(ctx, e, a.User, func(tx pgx.Tx) ([]int64, *audit.Act, error) {
		ended, err := one(tx.Query(ctx, e.SQL(endAbsence), id, by))
		if errors.Is(err, pgx.ErrNoRows) {
			return nil, nil, nil
		}
		a = ended
		return []int64{id}, act("absence.end", a.User, by, map[string]any{"absence": id}), err
	})
	return a, err
}

const (
	// Two imports of one list at once would leave both. The lock lets others read meanwhile, as rounds do.
	lockAbsences = `lock table getwork.absence in share row exclusive mode`

	// wished are the absences that an import names, without those that are over.
	wished = `
with wished as materialized (
  select distinct w.from_at, w.until_at, w.substitute
  from unnest($3::timestamptz[], $4::timestamptz[], $5::text[]) as w (from_at, until_at, substitute)
  where w.until_at is null or w.until_at > clock_timestamp()
)`
	sameAbsence = `(a.from_at, a.until_at, a.substitute) is not distinct from (w.from_at, w.until_at, w.substitute)`

	endOthers = wished + `
update getwork.absence a
set ended_at = clock_timestamp(), ended_by = $6
where a.user_name = $1 and a.source = $2 and a.ended_at is null and (a.until_at is null or a.until_at > clock_timestamp())
  and not exists (select from wished w where ` + sameAbsence + `)
returning a.id`

	// What its user has ended stays so as long as the list has it unchanged.
	insertWished = wished + `
insert into getwork.absence (user_name, source, from_at, until_at, substitute, created_by)
select $1, $2, w.from_at, w.until_at, w.substitute, $6
from wished w
where not exists (
  select from getwork.absence a
  where a.user_name = $1 and a.source = $2 and (a.ended_at is null or a.ended_by = a.user_name) and ` + sameAbsence + `)
order by w.from_at, w.until_at
returning id`
)

// ImportAbsences makes the absences of a user that came from a source those that are named, and returns them. It changes nothing where
// they are the same already, and those of other sources and those entered by hand stay. It is audited if it changes anything.
func ImportAbsences(ctx context.Context, e *engine.Engine, user, source string, all []assign.AbsenceWish, by string) ([]assign.Absence, error) {
	if err := assign.CheckUser(user); err != nil {
		return nil, err
	}
	if source == "" || assign.CheckInstance(source) != nil {
		return nil, assign.RefuseField("source", "source names the list that the absences are from, with 1 to 64 letters, digits, dots, underscores and hyphens, such as ?source=hr")
	}
	if len(all) > maxAbsences {
		return nil, assign.Refuse(assign.Invalid, "an import has at most %d absences, and this one has %d; leave out those that are past", maxAbsences, len(all))
	}
	var from, until []*time.Time
	var substitutes []*string
	for i, w := range all {
		prefix := fmt.Sprintf("[%d].", i)
		if w.From == nil {
			return nil, assign.RefuseField(prefix+"from", "an imported absence says when it begins")
		}
		if err := checkAbsence(ctx, e, user, w, prefix); err != nil {
			return nil, err
		}
		from, until, substitutes = append(from, inMicroseconds(w.From)), append(until, inMicroseconds(w.Until)), append(substitutes, w.Substitute)
	}
	err := change(ctx, e, user, func(tx pgx.Tx) (changed []int64, _ *audit.Act, err error) {
		if _, err := tx.Exec(ctx, e.SQL(lockAbsences)); err != nil {
			return nil, nil, err
		}
		for _, statement := range []string{endOthers, insertWished} {
			rows, err := tx.Query(ctx, e.SQL(statement), user, source, from, until, substitutes, by)
			if err != nil {
				return nil, nil, err
			}
			ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
			if err != nil {
				return nil, nil, err
			}
			changed = append(changed, ids...)
		}
		if len(changed) == 0 {
			return nil, nil, nil
		}
		return changed, act("absence.import", user, "", map[string]any{"source": source, "absences": len(all), "changed": len(changed)}), nil
	})
	if err != nil {
		return nil, err
	}
	return e.Records.ImportedAbsences(ctx, user, source)
}

// inMicroseconds rounds a time as PostgreSQL does when it keeps it, so that the same import is the same again.
func inMicroseconds(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	return new(t.Round(time.Microsecond))
}

// checkAbsence refuses what there can't be, and a substitute who would get nothing.
func checkAbsence(ctx context.Context, e *engine.Engine, user string, w assign.AbsenceWish, prefix string) error {
	if err := w.Check(user, prefix); err != nil || w.Substitute == nil {
		return err
	}
	known, err := e.Records.Known(ctx, *w.Substitute)
	if err != nil {
		return err
	}
	switch {
	case !known[0].Seen:
		return assign.RefuseField(prefix+"substitute", "nobody called %q has logged in, asked for work or held any here; check the name", *w.Substitute)
	case known[0].Blocked:
		return assign.RefuseField(prefix+"substitute", "%s is blocked, and gets no work; choose somebody else", *w.Substitute)
	}
	return nil
}

// act returns the row of the audit of what is done to others; nil: users do it to themselves.
func act(name, user, by string, detail map[string]any) *audit.Act {
	if user == by {
		return nil
	}
	return &audit.Act{Act: name, Object: user, Detail: detail}
}

func one(rows pgx.Rows, err error) (assign.Absence, error) {
	if err != nil {
		return assign.Absence{}, err
	}
	return pgx.CollectExactlyOneRow(rows, records.ScanAbsence)
}

// change writes absences of a user, and does what follows if they are away by now. What a node leaves that dies here, others find.
func change(ctx context.Context, e *engine.Engine, user string, write func(tx pgx.Tx) (changed []int64, act *audit.Act, err error)) error {
	var ended []notify.Change
	err := e.TransactAnnouncing(ctx, func(tx pgx.Tx) ([]notify.Change, error) {
		changed, act, err := write(tx)
		if err != nil || len(changed) == 0 {
			ended = nil
			return nil, err
		}
		if ended, err = e.EndAway(ctx, tx, user); err != nil {
			return nil, err
		}
		if act != nil {
			if err := e.Audit.Write(ctx, tx, *act); err != nil {
				return nil, err
			}
		}
		return append([]notify.Change{{Absences: changed}}, ended...), nil
	})
	var refusal *assign.Refusal
	if errors.As(err, &refusal) {
		return err
	}
	if err != nil {
		return fmt.Errorf("write absences: %w", err)
	}
	e.EndedAway(ended)
	ctx, cancel := pg.Detached(ctx)
	defer cancel()
	if err := e.ReleaseAway(ctx, user); err != nil {
		e.Log.Warn("take work from somebody who is away; it is tried again", "error", err)
	}
	return nil
}
