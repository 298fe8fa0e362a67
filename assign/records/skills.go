package records

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

const selectSkills = `select k.skills from getwork.skill k where k.user_name = $1`

// Skills returns what somebody can, in order.
func (rs *Records) Skills(ctx context.Context, user string) ([]string, error) {
	skills := []string{}
	err := rs.db.QueryRow(ctx, rs.sql(selectSkills), user).Scan(&skills)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return nil, fmt.Errorf("read what somebody can: %w", err)
	}
	return skills, nil
}
