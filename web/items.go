package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"getwork/assign"
	"getwork/assign/explain"
	"getwork/assign/manage"
	"getwork/assign/rights"
)

// pushItems puts items into an inbox: all of them, or none if one is invalid.
func (s *server) pushItems(w http.ResponseWriter, r *http.Request, name string) error {
	items, err := decodeItems(w, r)
	if err != nil {
		return err
	}
	pushed, err := s.Engine.Push(r.Context(), name, items, CallerOf(r).Who())
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, pushed)
}

// decodeItems reads the body one item at a time, so that whatever is wrong with an item, the refusal names it: "[3].priority".
func decodeItems(w http.ResponseWriter, r *http.Request) ([]assign.NewItem, error) {
	var each []json.RawMessage
	body, err := readBody(w, r, &each)
	if err != nil {
		return nil, err
	}
	const around = 2                                                   // the array, and the item
	if i, deep := assign.Deeper(body, around+assign.MaxLevels); deep { // encoding/json refuses some of these without saying where
		return nil, inElement(i, assign.RefuseField("details", "%s", assign.TooDeep))
	}
	if strictly(body, &each) != nil || each == nil {
		return nil, decodeBytes(body, &each) // which says what is wrong with the whole
	}
	items := make([]assign.NewItem, len(each))
	for i, one := range each {
		if err := decodeBytes(one, &items[i]); err != nil {
			return nil, inElement(i, err)
		}
	}
	return items, nil
}

// inElement adds to a refusal which element of an array it is about.
func inElement(i int, err error) error { return inList("", i, err) }

// inList is inElement for the array in a field.
func inList(field string, i int, err error) error {
	var r *assign.Refusal
	if !errors.As(err, &r) {
		return err
	}
	place := fmt.Sprintf("%s[%d]", field, i)
	if len(r.Fields) == 0 {
		r.Fields = []assign.Field{{Detail: r.Detail}}
	} else {
		place += "."
	}
	for j := range r.Fields {
		r.Fields[j].Field = place + r.Fields[j].Field
	}
	r.Detail = r.Fields[0].Field + ": " + r.Detail
	return r
}

// maxKey is the most bytes of an item's key.
const maxKey = 200

// itemOf returns the task and the item that the path names. Text that can't be a key is not found.
func itemOf(r *http.Request) (task, item string, err error) {
	if task, err = segment(r, "task"); err != nil {
		return "", "", err
	}
	if item, err = segment(r, "item"); err != nil {
		return "", "", err
	}
	if len(item) > maxKey {
		return "", "", assign.Refuse(assign.NotFound, "an item's key has at most %d bytes; this one has %d", maxKey, len(item))
	}
	return task, item, nil
}

// claim takes one named item: 201, or 200 if it is its holder's already. Managers may name somebody else as the holder.
func (s *server) claim(w http.ResponseWriter, r *http.Request) error {
	task, item, err := itemOf(r)
	if err != nil {
		return err
	}
	var body struct {
		User  *string `json:"user"`
		Force bool    `json:"force"`
	}
	if err := decodeIfAny(w, r, &body); err != nil {
		return err
	}
	c := CallerOf(r)
	take := func(ctx context.Context) (assign.Work, bool, error) { return s.Engine.Claim(ctx, task, item, c.Who()) }
	switch {
	case body.User == nil && body.Force:
		return refuseField("force", "force is for a claim in the name of somebody else; name them in user, or leave it out")
	case body.User != nil:
		if err := checkHolder(*body.User); err != nil {
			return err
		}
		if *body.User == c.Holder.User {
			break
		}
		if err := c.mayGive(); err != nil {
			return err
		}
		to := assign.Reassignment{User: *body.User, Force: body.Force}
		take = func(ctx context.Context) (assign.Work, bool, error) {
			return manage.Give(ctx, s.Engine, task, item, to)
		}
	}
	var work assign.Work
	var claimed bool
	err = s.patiently(w, r, func(ctx context.Context) (err error) {
		work, claimed, err = take(ctx)
		return err
	})
	if err != nil {
		return err
	}
	status := http.StatusOK
	if claimed {
		status = http.StatusCreated
	}
	return s.answerWork(w, r, status, work)
}

// mayGive refuses who may claim items, but not in the name of others. That is a manager's act, as a reassignment is.
func (c *Caller) mayGive() error {
	switch {
	case c.Role != Manager:
		return assign.Refuse(assign.Forbidden, "only a manager can claim an item in the name of somebody else, and your role is %s; leave user out to claim it yourself", c.Role)
	case c.Scopes != nil && !slices.Contains(c.Scopes, rights.ScopeManage):
		return assign.Refuse(assign.Forbidden, "this token is for %s, and a claim in the name of somebody else needs manage; make a token with that scope", strings.Join(c.Scopes, " and "))
	}
	return nil
}

// explain says whether an item matches its task, and why it is not handed out.
func (s *server) explain(w http.ResponseWriter, r *http.Request) error {
	task, item, err := itemOf(r)
	if err != nil {
		return err
	}
	explanation, err := readPatiently(s, w, r, func(ctx context.Context) (assign.Explanation, error) {
		return explain.Item(ctx, s.Engine, task, item, s.Feed.Live())
	})
	if err != nil {
		return err
	}
	if err := s.fit(r, assign.SizeOf(slices.Concat(explanation.Held, explanation.History), 1)+len(explanation.Details)+256*len(explanation.Could)); err != nil {
		return err
	}
	return answer(w, http.StatusOK, explanation)
}

// redrive puts items back that are never to return: the named ones, or all whose attempts were used up. It refuses an empty
// list, which is neither.
func (s *server) redrive(w http.ResponseWriter, r *http.Request, name string) error {
	var body struct {
		Items []string `json:"items"`
	}
	if err := decodeIfAny(w, r, &body); err != nil {
		return err
	}
	if body.Items != nil && len(body.Items) == 0 {
		return refuseField("items", "name at least one item, or leave items out: then all whose attempts were used up are put back")
	}
	count, err := manage.Redrive(r.Context(), s.Engine, name, body.Items, CallerOf(r).Holder.User)
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, map[string]int64{"count": count})
}
