package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"getwork/assign"
	"getwork/cmd/internal/command"
	"getwork/web"
	api "getwork/ws/client"
)

// DoneCmd lets go of work.
type DoneCmd struct {
	IDs     []string       `arg:"" name:"work-id" help:"The work to let go of; get and pipeline show its id."`
	Outcome string         `help:"complete, the default: it is done. return: it goes back to the queue after --after. never: nobody gets it for this task again. fail: the attempt went wrong; it comes back after the task's backoff." default:"" enum:",complete,return,never,fail" placeholder:"complete|return|never|fail"`
	Code    *string        `help:"Why, as a code of the task's outcomes, which says what is done." placeholder:"CODE"`
	Field   []string       `sep:"none" help:"A field of the result, as NAME=VALUE; may be repeated. A number, true and false are taken as such, all else and what stands in double quotes as text." placeholder:"NAME=VALUE"`
	After   *time.Duration `help:"With --outcome return: how long until somebody may get it again, from 0s to 72h." placeholder:"4h"`
	To      *string        `help:"With --outcome return: all, or others, so that you don't get it again." enum:"all,others" placeholder:"all|others"`
	Error   *string        `help:"With --outcome fail: what went wrong, in at most 4 KiB." placeholder:"TEXT"`
	Note    *string        `help:"A note to keep with the work, of at most 4 KiB." placeholder:"TEXT"`
	holding `embed:""`
}

// Help returns the text that --help adds.
func (DoneCmd) Help() string {
	return `Examples:

  getwork done 17 18
  getwork done 17 --outcome return --after 4h --note "called, no answer"
  getwork done 17 --outcome return --after 0s --to others
  getwork done 17 --outcome fail --error "the photo is broken"
  getwork done 17 --outcome never
  getwork done 17 --code no-answer --field rings=3

Repeating a command changes nothing. Managers may let go of other people's work: --role manager.`
}

func (c DoneCmd) disposition() (assign.Disposition, error) {
	d := assign.Disposition{Outcome: cmp.Or(c.Outcome, "complete"), Code: c.Code, After: (*assign.Duration)(c.After), To: c.To, Error: c.Error, Note: c.Note}
	for _, field := range c.Field {
		name, value, is := strings.Cut(field, "=")
		if !is || name == "" {
			return d, command.Usage("--field has the form NAME=VALUE, not %q", field)
		}
		if _, twice := d.Result[name]; twice {
			return d, command.Usage("--field %s stands there twice", name)
		}
		if d.Result == nil {
			d.Result = map[string]any{}
		}
		d.Result[name] = valueOf(value)
	}
	if c.Code != nil { // the task's codes say what goes with it, and the server checks it
		d.Outcome = c.Outcome
		return d, nil
	}
	switch {
	case c.Outcome == "return" && c.After == nil:
		return d, command.Usage("--outcome return needs --after, from 0s to 72h: how long until somebody may get it again")
	case c.Outcome != "return" && c.After != nil:
		return d, command.Usage("--after belongs to --outcome return, not to %s", d.Outcome)
	case c.Outcome != "return" && c.To != nil:
		return d, command.Usage("--to belongs to --outcome return, not to %s", d.Outcome)
	case c.Outcome != "fail" && c.Error != nil:
		return d, command.Usage("--error belongs to --outcome fail, not to %s; --note goes with any", d.Outcome)
	case c.After != nil && (*c.After < 0 || *c.After > 72*time.Hour):
		return d, command.Usage("--after must be from 0s to 72h, not %s", assign.Duration(*c.After))
	}
	return d, nil
}

// valueOf returns the value of a field that was typed.
func valueOf(text string) any {
	var v any
	if json.Unmarshal([]byte(text), &v) == nil {
		switch v.(type) {
		case string, float64, bool:
			return v
		}
	}
	return text
}

// Run closes the work, in calls of up to [assign.MaxMany]. A refused item keeps no other from being closed.
func (c DoneCmd) Run(ctx context.Context, s *command.Streams) error {
	d, err := c.disposition()
	if err != nil {
		return err
	}
	if err := checkIDs(c.IDs...); err != nil {
		return err
	}
	client, err := c.connect(web.Worker)
	if err != nil {
		return err
	}
	closed, works, failed := inBulk(ctx, client, "/work/dispositions", "dispositions", slices.Chunk(disposals(c.IDs, d), disposalsWithin(d)),
		func(one assign.Disposal) int64 { return one.ID })
	var rows [][]string
	for _, w := range works {
		rows = append(rows, []string{strconv.FormatInt(w.ID, 10), w.Task, w.Item, string(w.State), minute(w.AvailableAt)})
	}
	switch {
	case c.JSON:
		err = printJSON(s.Out, map[string]any{"work": closed})
	case len(rows) > 0:
		err = Table(s.Out, lean([]string{"WORK-ID", "TASK", "ITEM", "STATE", "AGAIN FROM"}, &rows, 4), rows)
	}
	if c.Outcome == "" && len(works) > 0 && !c.JSON {
		_, _ = fmt.Fprintln(s.Errs, "Completed, as always without --outcome. `getwork done --help` has the other ways to let go of work.")
	}
	return errors.Join(append(failed, err)...)
}

// inBulk makes a call for each part of what is to be done with much work. It returns the work, as the server sent it and decoded, and why
// some was refused.
func inBulk[T any](ctx context.Context, client *Client, path, field string, parts iter.Seq[[]T], idOf func(T) int64) (raw []json.RawMessage, works []assign.Work, failed []error) {
	raw = []json.RawMessage{}
	for part := range parts {
		var answer struct {
			Results []struct {
				ID      int64 `json:"id,string"`
				Work    json.RawMessage
				Problem *assign.Problem
			}
		}
		if _, err := client.Do(ctx, Call{Method: "POST", Path: path, Body: map[string]any{field: part}}, &answer); err != nil {
			failed = append(failed, named("work "+strconv.FormatInt(idOf(part[0]), 10), err))
			break // the server can't be reached: the rest would fail, too
		}
		for _, r := range answer.Results {
			var w assign.Work
			var err error
			if r.Problem != nil {
				err = &refused{Problem: api.Problem{Problem: *r.Problem}, url: client.URL, byToken: client.Token != ""}
			} else {
				err = json.Unmarshal(r.Work, &w)
			}
			if err != nil {
				failed = append(failed, named("work "+strconv.FormatInt(r.ID, 10), err))
				continue
			}
			raw, works = append(raw, r.Work), append(works, w)
		}
	}
	return raw, works, failed
}

// workIDs returns ids that were checked, each once.
func workIDs(texts []string) (ids []int64) {
	known := map[int64]bool{}
	for _, text := range texts {
		if id, _ := strconv.ParseInt(text, 10, 64); !known[id] {
			known[id] = true
			ids = append(ids, id)
		}
	}
	return ids
}

// disposals returns the dispositions of the work with those ids.
func disposals(ids []string, d assign.Disposition) (all []assign.Disposal) {
	for _, id := range workIDs(ids) {
		all = append(all, assign.Disposal{ID: id, Disposition: d})
	}
	return all
}

// disposalsWithin returns how many dispositions fit into one call, whose body has at most 1 MiB.
func disposalsWithin(d assign.Disposition) int {
	one, _ := json.Marshal(assign.Disposal{ID: math.MaxInt64, Disposition: d})
	return min(assign.MaxMany, 1<<20/(len(one)+1)-1)
}

// checkIDs returns a usage error for an id that can't be one, before anything is done with the others.
func checkIDs(ids ...string) error {
	for _, id := range ids {
		if n, err := strconv.ParseUint(id, 10, 63); err != nil || n == 0 {
			return command.Usage("an id of work is a number, not %q; `getwork pipeline` lists yours", id)
		}
	}
	return nil
}

// named puts the subject of an error before it, unless its text names the subject.
func named(noun string, err error) error {
	if strings.Contains(err.Error(), noun) {
		return err
	}
	return fmt.Errorf("%s: %w", noun, err)
}
