package manage

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
	"getwork/assign/audit"
	"getwork/assign/engine"
	"getwork/assign/pg"
)

// Whoever comes second with the same version is left out.
const insertLimits = `
insert into getwork.limits (version, created_by, everybody, groups, people)
select $1, $2, $3, nullif($4::jsonb, '{}'), nullif($5::jsonb, '{}')
on conflict do nothing`

// SetLimits replaces the limits over all tasks, if their version is still the given one ([assign.StaleVersion] otherwise), and returns
// the new version. It takes nothing away from anybody, and wakes nobody: who is at a limit does not wait.
func SetLimits(ctx context.Context, e *engine.Engine, l assign.Limits, version int, by string) (int, error) {
	if err := l.Check(); err != nil {
		return 0, err
	}
	was, now, err := e.Records.Limits(ctx)
	if err != nil {
		return 0, err
	}
	if now != version {
		return 0, StaleLimits(now)
	}
	err = pg.Transact(ctx, e.DB, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, e.SQL(insertLimits), version+1, by, l.Everybody, l.Groups, l.People)
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			return StaleLimits(version + 1)
		}
		return e.Audit.Write(ctx, tx, audit.Act{Act: "limits.update", Detail: changedLimits(was, l, version+1)})
	})
	if err != nil && !assign.IsRefusal(err, assign.StaleVersion) {
		return 0, fmt.Errorf("set the limits: %w", err)
	}
	return version + 1, err
}

// StaleLimits is the refusal of a change of limits that are at another version.
func StaleLimits(version int) error {
	return assign.Refuse(assign.StaleVersion, "the limits are at version %d now; read them again and repeat your change", version)
}

// maxChangedLimits is how many of the changed limits an act names.
const maxChangedLimits = 100

// changedLimits returns the limits that are others now; null: none.
func changedLimits(was, is assign.Limits, version int) any {
	changed := map[string]*int{}
	differ := func(prefix string, was, is map[string]*int) {
		names := maps.Clone(was)
		if names == nil {
			names = map[string]*int{}
		}
		maps.Copy(names, is)
		for _, name := range slices.Sorted(maps.Keys(names)) {
			before, named := was[name]
			after, names := is[name]
			if (named != names || !reflect.DeepEqual(before, after)) && len(changed) < maxChangedLimits {
				changed[prefix+name] = after
			}
		}
	}
	differ("", map[string]*int{"everybody": was.Everybody}, map[string]*int{"everybody": is.Everybody})
	differ("groups.", was.Groups, is.Groups)
	differ("people.", was.People, is.People)
	return struct {
		Version int             `json:"version"`
		Changed map[string]*int `json:"changed"`
	}{version, changed}
}
