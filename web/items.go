package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"getwork/assign"
)

// pushItems puts items into an inbox: all of them, or none if one is invalid.
func (s *server) pushItems(w http.ResponseWriter, r *http.Request) error {
	name, err := segment(r, "task")
	if err != nil {
		return err
	}
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

// decodeItems reads the body one item at a time, so that a refusal names the item: "[3].priority".
func decodeItems(w http.ResponseWriter, r *http.Request) ([]assign.NewItem, error) {
	var each []json.RawMessage
	if err := decode(w, r, &each); err != nil {
		return nil, err
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
func inElement(i int, err error) error {
	var r *assign.Refusal
	if !errors.As(err, &r) {
		return err
	}
	place := fmt.Sprintf("[%d]", i)
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

// claim takes one named item: 201, or 200 if it is the caller's already.
func (s *server) claim(w http.ResponseWriter, r *http.Request) error {
	task, item, err := itemOf(r)
	if err != nil {
		return err
	}
	if err := decodeIfAny(w, r, &struct{}{}); err != nil {
		return err
	}
	var work assign.Work
	var claimed bool
	err = s.patiently(w, r, func(ctx context.Context) (err error) {
		work, claimed, err = s.Engine.Claim(ctx, task, item, CallerOf(r).Who())
		return err
	})
	if err != nil {
		return err
	}
	status := http.StatusOK
	if claimed {
		status = http.StatusCreated
	}
	return answer(w, status, work)
}

// explain says whether an item matches its task, and why it is not handed out.
func (s *server) explain(w http.ResponseWriter, r *http.Request) error {
	task, item, err := itemOf(r)
	if err != nil {
		return err
	}
	explanation, err := readPatiently(s, w, r, func(ctx context.Context) (assign.Explanation, error) { return s.Engine.Explain(ctx, task, item) })
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, explanation)
}

// redrive puts items back that are never to return: the named ones, or all whose attempts were used up. It refuses an empty
// list, which is neither.
func (s *server) redrive(w http.ResponseWriter, r *http.Request) error {
	name, err := segment(r, "task")
	if err != nil {
		return err
	}
	var body struct {
		Items []string `json:"items"`
	}
	if err := decodeIfAny(w, r, &body); err != nil {
		return err
	}
	if body.Items != nil && len(body.Items) == 0 {
		return refuseField("items", "name at least one item, or leave items out: then all whose attempts were used up are put back")
	}
	count, err := s.Engine.Redrive(r.Context(), name, body.Items, CallerOf(r).Holder.User)
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, map[string]int64{"count": count})
}
