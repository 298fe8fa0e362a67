package cli

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"time"

	"getwork/assign"
	"getwork/cmd/internal/command"
	"getwork/web"
)

// AwayCmd enters an absence.
type AwayCmd struct {
	From       string  `help:"When it begins; the default is now." placeholder:"TIME"`
	Until      string  `help:"When it ends: a time such as 2030-01-31T08:00:00Z or, in this machine's zone, \"2030-01-31 08:00\", or a time from now such as 90m; the default is when somebody ends it." placeholder:"TIME"`
	Substitute *string `help:"Who gets what you hold, under tasks that pass it on." placeholder:"USER"`
	Of         *string `help:"For managers: who is away; the default is you." placeholder:"USER"`
	Remote     `embed:""`
}

// Help returns the text that --help adds.
func (AwayCmd) Help() string {
	return `Examples:

  getwork away --until "2030-01-31 08:00" --substitute tracy
  getwork away --of oliver

Whoever is away gets no work, and what they wait for ends. What they hold stays theirs, goes back, or goes to their substitute: each task's on_away says so. getwork back ends it.`
}

// Run enters the absence.
func (c AwayCmd) Run(ctx context.Context, s *command.Streams) error {
	if err := filled(map[string]*string{"--of": c.Of, "--substitute": c.Substitute}); err != nil {
		return err
	}
	body := struct {
		User *string `json:"user,omitempty"`
		assign.AbsenceWish
	}{c.Of, assign.AbsenceWish{Substitute: c.Substitute}}
	for _, f := range []struct {
		flag, text string
		into       **time.Time
	}{{"--from", c.From, &body.From}, {"--until", c.Until, &body.Until}} {
		if f.text == "" {
			continue
		}
		at, err := timeOf(f.flag, f.text, time.Now())
		if err != nil {
			return err
		}
		*f.into = &at
	}
	client, err := c.Connect(roleFor(c.Of))
	if err != nil {
		return err
	}
	var a assign.Absence
	got, err := client.Do(ctx, Call{Method: "POST", Path: "/absences", Body: body}, &a)
	switch {
	case err != nil:
		return err
	case c.JSON:
		return printJSON(s.Out, got.body)
	}
	return printAbsences(s.Out, a)
}

// BackCmd ends absences.
type BackCmd struct {
	Of     *string `help:"For managers: who is back; the default is you." placeholder:"USER"`
	Remote `embed:""`
}

// Help returns the text that --help adds.
func (BackCmd) Help() string {
	return "Ends all absences that have begun; those to come stay. Then ask for work: nothing is handed out because somebody is back."
}

// Run ends the absences.
func (c BackCmd) Run(ctx context.Context, s *command.Streams) error {
	if err := filled(map[string]*string{"--of": c.Of}); err != nil {
		return err
	}
	client, err := c.Connect(roleFor(c.Of))
	if err != nil {
		return err
	}
	var me struct {
		User string `json:"user"`
	}
	if c.Of != nil {
		me.User = *c.Of
	} else if _, err := client.Do(ctx, Call{Method: "GET", Path: "/me"}, &me); err != nil {
		return err
	}
	var page struct {
		Absences []assign.Absence `json:"absences"`
	}
	query := url.Values{"user": {me.User}, "limit": {strconv.Itoa(maxPage)}}
	if _, err := client.Do(ctx, Call{Method: "GET", Path: "/absences?" + query.Encode()}, &page); err != nil {
		return err
	}
	ended := []assign.Absence{}
	for _, a := range page.Absences {
		if a.From.After(time.Now().Add(time.Minute)) { // the server's clock may be ahead of this machine's
			continue
		}
		if _, err := client.Do(ctx, Call{Method: "DELETE", Path: "/absences/" + strconv.FormatInt(a.ID, 10)}, &a); err != nil {
			return err
		}
		ended = append(ended, a)
	}
	switch {
	case c.JSON:
		return printJSON(s.Out, map[string]any{"absences": ended})
	case len(ended) == 0:
		_, err := fmt.Fprintf(s.Errs, "%s is not away.\n", me.User)
		return err
	}
	return printAbsences(s.Out, ended...)
}

// roleFor returns the role that a command needs: a manager's, if it is about somebody else.
func roleFor(of *string) web.Role {
	if of != nil {
		return web.Manager
	}
	return web.Worker
}

// printAbsences lists absences. Columns that are empty in every row are left out.
func printAbsences(w io.Writer, absences ...assign.Absence) error {
	rows := make([][]string, len(absences))
	for i, a := range absences {
		until := "somebody ends it"
		if a.Until != nil {
			until = minute(a.Until)
		}
		rows[i] = []string{strconv.FormatInt(a.ID, 10), a.User, minute(&a.From), until, textOf(a.Substitute), a.Source, minute(a.EndedAt)}
	}
	return Table(w, lean([]string{"ID", "USER", "AWAY FROM", "UNTIL", "SUBSTITUTE", "SOURCE", "ENDED"}, &rows, 4), rows)
}
