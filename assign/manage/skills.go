package manage

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
	"getwork/assign/audit"
	"getwork/assign/engine"
	"getwork/notify"
)

const upsertSkills = `
insert into getwork.skill as k (user_name, skills, changed_by)
values ($1, $2, $3)
on conflict (user_name) do update set skills = excluded.skills, changed_by = excluded.changed_by, changed_at = clock_timestamp()
where k.skills <> excluded.skills`

// SetSkills replaces what somebody can, whether or not they have been seen, and returns it, in order. It is audited if it changes
// anything. Rounds go by it from the commit on; whoever lingers looks again.
func SetSkills(ctx context.Context, e *engine.Engine, user string, skills []string, by string) ([]string, error) {
	if err := assign.CheckUser(user); err != nil {
		return nil, err
	}
	skills, err := assign.CheckSkills("skills", skills, assign.MaxSkills)
	if err != nil {
		return nil, err
	}
	skills = append([]string{}, skills...)
	var woken []int64
	err = e.TransactAnnouncing(ctx, func(tx pgx.Tx) (changes []notify.Change, err error) {
		woken = nil
		tag, err := tx.Exec(ctx, e.SQL(upsertSkills), user, skills, by)
		if err != nil || tag.RowsAffected() == 0 {
			return nil, err
		}
		if woken, changes, err = e.LookAgain(ctx, tx, user); err != nil {
			return nil, err
		}
		return changes, e.Audit.Write(ctx, tx, audit.Act{Act: "skills.set", Object: user, Detail: map[string]any{"skills": skills}})
	})
	if err != nil {
		return nil, fmt.Errorf("set skills: %w", err)
	}
	for _, task := range woken {
		e.WakeLingering(task)
	}
	return skills, nil
}
