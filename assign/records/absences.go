package records

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
)

const (
	// InForce is true for an absence a that is in force. The sub-queries read the time once, so that an index can be used.
	InForce = `a.ended_at is null and a.from_at <= (select clock_timestamp()) and (a.until_at is null or a.until_at > (select clock_timestamp()))`

	// AbsenceColumns are the columns that ScanAbsence reads of an absence a.
	AbsenceColumns = `a.id, a.user_name, a.from_at, a.until_at, a.substitute, a.source, a.created_by, a.ended_at, a.ended_by`

	// notOver is true for an absence a that is in force or to come.
	notOver = `a.ended_at is null and (a.until_at is null or a.until_at > (select clock_timestamp()))`

	selectAbsences = `
select ` + AbsenceColumns + `
from getwork.absence a
where ` + notOver + ` and ($1 = '' or a.user_name = $1) and a.id > $2
order by a.id
limit $3`

	selectInForce = `
select ` + AbsenceColumns + `
from getwork.absence a
where a.user_name = $1 and ` + InForce + `
order by a.until_at desc nulls first, a.id
limit 1`

	selectAbsence = `select ` + AbsenceColumns + ` from getwork.absence a where a.id = $1`

	selectImported = `
select ` + AbsenceColumns + `
from getwork.absence a
where a.user_name = $1 and a.source = $2 and ` + notOver + `
order by a.from_at, a.id`

	selectTheirAbsences = `
select ` + AbsenceColumns + `
from getwork.absence a
where a.user_name = any($1::text[]) and ` + notOver + `
order by a.from_at, a.id`
)

// ScanAbsence reads one row of AbsenceColumns.
func ScanAbsence(row pgx.CollectableRow) (a assign.Absence, err error) {
	err = row.Scan(&a.ID, &a.User, &a.From, &a.Until, &a.Substitute, &a.Source, &a.CreatedBy, &a.EndedAt, &a.EndedBy)
	a.From, a.Until, a.EndedAt = a.From.UTC(), assign.UTC(a.Until), assign.UTC(a.EndedAt)
	return a, err
}

// Absences returns up to limit absences with ids above after that are in force or to come, of one user or, if user is empty, of all.
func (rs *Records) Absences(ctx context.Context, user string, after int64, limit int) ([]assign.Absence, error) {
	return rs.absences(ctx, selectAbsences, user, after, limit)
}

// ImportedAbsences returns the absences of a user that a source has and that are in force or to come.
func (rs *Records) ImportedAbsences(ctx context.Context, user, source string) ([]assign.Absence, error) {
	return rs.absences(ctx, selectImported, user, source)
}

// Away returns the absence of a user that is in force, of several the one that lasts longest; nil: they are not away.
func (rs *Records) Away(ctx context.Context, user string) (*assign.Absence, error) {
	return first(rs.absences(ctx, selectInForce, user))
}

// Absence returns an absence; nil: there is none with that id.
func (rs *Records) Absence(ctx context.Context, id int64) (*assign.Absence, error) {
	return first(rs.absences(ctx, selectAbsence, id))
}

func first(all []assign.Absence, err error) (*assign.Absence, error) {
	if err != nil || len(all) == 0 {
		return nil, err
	}
	return &all[0], nil
}

func (rs *Records) absences(ctx context.Context, statement string, args ...any) ([]assign.Absence, error) {
	rows, err := rs.db.Query(ctx, rs.sql(statement), args...)
	var all []assign.Absence
	if err == nil {
		all, err = pgx.CollectRows(rows, ScanAbsence)
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		err = fmt.Errorf("read absences: %w", err)
	}
	return all, err
}
