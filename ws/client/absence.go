package client

import (
	"context"
	"net/http"

	"getwork/assign"
)

// NewAbsence is the body of [Client.CreateAbsence].
type NewAbsence struct {
	User string `json:"user,omitempty"` // empty: the caller; others are for managers
	assign.AbsenceWish
}

// CreateAbsence enters an absence. It is not repeated if the answer is lost: ListAbsences shows whether it was entered.
func (c *Client) CreateAbsence(ctx context.Context, n NewAbsence, options ...Option) (a assign.Absence, err error) {
	err = c.send(ctx, http.MethodPost, path("absences"), n, &a, options)
	return a, err
}

// ListAbsences reads absences that are in force or to come: of one user, or with an empty name all that the caller may see.
func (c *Client) ListAbsences(ctx context.Context, user string, p Part, options ...Option) (Page[assign.Absence], error) {
	return list[assign.Absence](ctx, c, path("absences"), "absences", p.query("user", user), options)
}

// EndAbsence ends an absence that is in force or to come. Ending it again changes nothing.
func (c *Client) EndAbsence(ctx context.Context, id int64, options ...Option) (a assign.Absence, err error) {
	err = c.sendSafe(ctx, http.MethodDelete, path("absences", text(id)), nil, &a, options)
	return a, err
}

// ImportAbsences makes the absences of a user that came from a source those that are named, and returns what they are now. For managers.
func (c *Client) ImportAbsences(ctx context.Context, user, source string, all []assign.AbsenceWish, options ...Option) ([]assign.Absence, error) {
	var now struct {
		Absences []assign.Absence `json:"absences"`
	}
	if all == nil {
		all = []assign.AbsenceWish{}
	}
	put := call{method: http.MethodPut, path: api + path("people", user, "absences"), query: query("source", source), body: all, within: answerWithin, safe: true}
	err := c.do(ctx, put, &now, options)
	return now.Absences, err
}
