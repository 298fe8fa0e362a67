package client

import (
	"context"
	"net/http"
)

// ShowSkills reads what somebody can, beside their groups: for items that need it. Workers and agents read their own.
func (c *Client) ShowSkills(ctx context.Context, user string, options ...Option) (skills []string, err error) {
	err = c.get(ctx, path("people", user, "skills"), nil, &skills, options)
	return skills, err
}

// SetSkills replaces what somebody can, and returns it, in order. For managers.
func (c *Client) SetSkills(ctx context.Context, user string, skills []string, options ...Option) (now []string, err error) {
	if skills == nil {
		skills = []string{}
	}
	err = c.sendSafe(ctx, http.MethodPut, path("people", user, "skills"), skills, &now, options)
	return now, err
}
