package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"getwork/assign"
	"getwork/cmd/internal/command"
	"getwork/web"
	api "getwork/ws/client"
)

// WebhookCmd has the commands for web hooks, which are URLs to which events are posted.
type WebhookCmd struct {
	List       webhookListCmd       `cmd:"" help:"List web hooks, and how they are doing."`
	Create     webhookCreateCmd     `cmd:"" help:"Post a task's events to a URL."`
	Test       webhookTestCmd       `cmd:"" help:"Send a test event, and wait for the answer."`
	Rotate     webhookRotateCmd     `cmd:"" help:"Change the secret; the former one signs, too, for a while."`
	Deliveries webhookDeliveriesCmd `cmd:"" help:"List the events that were sent, and those that wait."`
	Redrive    webhookRedriveCmd    `cmd:"" help:"Send events again that were not delivered within three days."`
	Delete     webhookDeleteCmd     `cmd:"" help:"Delete a web hook, with the events that wait for it."`
}

type webhookListCmd struct {
	Task   *string `help:"Only those of this task." placeholder:"TASK" complete:"task"`
	Remote `embed:""`
}

// Help returns the text that --help adds.
func (webhookListCmd) Help() string {
	return "RETRY says when a web hook that fails is tried again. WAITING and DEAD count events, up to 1000. Managers see those of tasks, administrators those of all tasks."
}

// Run lists web hooks.
func (c webhookListCmd) Run(ctx context.Context, s *command.Streams) error {
	if err := filled(map[string]*string{"--task": c.Task}); err != nil {
		return err
	}
	client, err := c.Connect(web.Manager)
	if err != nil {
		return err
	}
	query := ""
	if c.Task != nil {
		query = "?" + url.Values{"task": {*c.Task}}.Encode()
	}
	var list struct {
		Webhooks []assign.Webhook `json:"webhooks"`
	}
	got, err := client.Do(ctx, Call{Method: http.MethodGet, Path: "/webhooks" + query}, &list)
	switch {
	case err != nil:
		return err
	case c.JSON:
		return printJSON(s.Out, got.body)
	case len(list.Webhooks) == 0:
		_, err = fmt.Fprintln(s.Errs, "There are no web hooks. `getwork webhook create` makes one.")
		return err
	}
	rows := make([][]string, len(list.Webhooks))
	for i, w := range list.Webhooks {
		task := "(all)"
		if w.Task != nil {
			task = *w.Task
		}
		rows[i] = []string{strconv.FormatInt(w.ID, 10), task, w.URL, strings.Join(w.Events, ","), strconv.FormatInt(w.Waiting, 10), strconv.FormatInt(w.Dead, 10), minute(w.RetryAt), minute(w.FormerUntil), w.CreatedBy}
	}
	return Table(s.Out, lean([]string{"ID", "TASK", "URL", "EVENTS", "WAITING", "DEAD", "RETRY", "FORMER SECRET UNTIL", "MADE BY"}, &rows, 6), rows)
}

type webhookCreateCmd struct {
	Address string   `arg:"" name:"receiver" help:"Where events are posted, as https://…"`
	Task    string   `call:"" help:"The task whose events are sent." placeholder:"TASK" complete:"task" xor:"which"`
	All     bool     `call:"" help:"Send the events of all tasks, later ones included; for administrators." xor:"which"`
	Events  []string `call:"" help:"Which: work.assigned, work.closed, work.expired, run.failed, alert.begun, alert.ended; all of them by default." placeholder:"EVENT"`
	Form    string   `call:"" help:"How it gets them: getwork, the default, as JSON; slack or teams as messages of a channel, by default those of alerts." placeholder:"FORM"`
	Remote  `embed:""`
}

// Help returns the text that --help adds.
func (webhookCreateCmd) Help() string {
	return "Prints the secret on standard output, once: the receiver verifies signatures with it, by a library of standardwebhooks.com. For managers."
}

// Run makes a web hook.
func (c webhookCreateCmd) Run(ctx context.Context, s *command.Streams) error {
	if c.Task == "" && !c.All {
		return command.Usage("say whose events: --task TASK, or --all")
	}
	client, err := c.Connect(web.Manager)
	if err != nil {
		return err
	}
	body := assign.NewWebhook{URL: c.Address, Events: c.Events, Form: c.Form}
	if c.Task != "" {
		body.Task = &c.Task
	}
	var made api.MadeWebhook
	got, err := client.Do(ctx, Call{Method: http.MethodPost, Path: "/webhooks", Body: body}, &made)
	switch {
	case err != nil:
		return err
	case c.JSON:
		return printJSON(s.Out, got.body)
	}
	if err := printSecret(s, made.Secret, made.ID); err != nil {
		return err
	}
	_, err = fmt.Fprintf(s.Errs, "Web hook %d is told of %s. Its secret is not shown again. `getwork webhook test %d` sends a test.\n", made.ID, strings.Join(made.Events, ", "), made.ID)
	return err
}

// printSecret prints the secret of a web hook, which is shown only once.
func printSecret(s *command.Streams, secret string, webhook int64) error {
	if _, err := fmt.Fprintln(s.Out, secret); err != nil {
		return fmt.Errorf("the secret was made and can't be printed: %w\nmake another with `getwork webhook rotate %d`", err, webhook)
	}
	return nil
}

// webhookID is the argument of commands about one web hook.
type webhookID struct {
	ID int64 `arg:"" name:"webhook-id" help:"The web hook; webhook list shows its id."`
}

func (w webhookID) path(then string) string {
	return "/webhooks/" + strconv.FormatInt(w.ID, 10) + then
}

type webhookTestCmd struct {
	webhookID `embed:""`
	Remote    `embed:""`
}

// testWithin is longer than a node takes to find the test and to wait for the answer.
const testWithin = 20 * time.Second

// Run sends a test.
func (c webhookTestCmd) Run(ctx context.Context, s *command.Streams) error {
	client, err := c.Connect(web.Manager)
	if err != nil {
		return err
	}
	var begun struct {
		Delivery int64 `json:"delivery,string"`
	}
	if _, err := client.Do(ctx, Call{Method: http.MethodPost, Path: c.path("/test")}, &begun); err != nil {
		return err
	}
	// The page that begins with it has nothing newer.
	at := c.path("/deliveries?limit=1&cursor=") + strconv.FormatInt(begun.Delivery+1, 10)
	for deadline := time.Now().Add(testWithin); ; {
		var list struct {
			Deliveries []assign.Delivery `json:"deliveries"`
		}
		got, err := client.Do(ctx, Call{Method: http.MethodGet, Path: at}, &list)
		if err != nil {
			return err
		}
		if len(list.Deliveries) == 0 || list.Deliveries[0].ID != begun.Delivery {
			return fmt.Errorf("the web hook was deleted meanwhile")
		}
		d := list.Deliveries[0]
		over := d.State != "waiting" || d.Error != nil
		if !over && time.Now().After(deadline) {
			return fmt.Errorf("no node has sent the test yet; `getwork webhook deliveries %d` shows what becomes of it", c.ID)
		}
		if over && c.JSON {
			err = printJSON(s.Out, got.body)
		}
		switch {
		case !over:
		case d.Error != nil:
			return errors.Join(fmt.Errorf("the test failed: %s; it is sent again", plain(*d.Error)), err)
		case c.JSON:
			return err
		default:
			_, err = fmt.Fprintf(s.Out, "Delivered: the receiver answered %d.\n", *d.Status)
			return err
		}
		select {
		case <-ctx.Done():
			return ErrInterrupted
		case <-time.After(200 * time.Millisecond):
		}
	}
}

type webhookRotateCmd struct {
	webhookID `embed:""`
	Keep      time.Duration `call:"" help:"How long the former secret signs, too, at most 168h (default ${default}); 0s when it has become known." default:"24h"`
	Remote    `embed:""`
}

// Help returns the text that --help adds.
func (webhookRotateCmd) Help() string {
	return "Prints the new secret on standard output, once. Until --keep is over, messages carry both signatures, so the receiver can switch at any time."
}

// Run changes a secret.
func (c webhookRotateCmd) Run(ctx context.Context, s *command.Streams) error {
	client, err := c.Connect(web.Manager)
	if err != nil {
		return err
	}
	var made api.RotatedSecret
	got, err := client.Do(ctx, Call{Method: http.MethodPost, Path: c.path("/rotate"), Body: map[string]any{"keep": assign.Duration(c.Keep)}}, &made)
	switch {
	case err != nil:
		return err
	case c.JSON:
		return printJSON(s.Out, got.body)
	}
	if err := printSecret(s, made.Secret, c.ID); err != nil {
		return err
	}
	former := "The former one signs nothing any more."
	if made.FormerUntil != nil {
		former = "The former one signs, too, until " + moment(made.FormerUntil) + "."
	}
	_, err = fmt.Fprintf(s.Errs, "The secret is not shown again. %s\n", former)
	return err
}

type webhookDeliveriesCmd struct {
	webhookID `embed:""`
	State     string `help:"Only those that are waiting, delivered or dead." enum:"waiting,delivered,dead," default:"" placeholder:"STATE"`
	paged     `embed:""`
	Remote    `embed:""`
}

// Run lists deliveries.
func (c webhookDeliveriesCmd) Run(ctx context.Context, s *command.Streams) error {
	client, err := c.Connect(web.Manager)
	if err != nil {
		return err
	}
	query := url.Values{}
	if c.State != "" {
		query.Set("state", c.State)
	}
	found, err := c.list(ctx, client, c.path("/deliveries"), query, "deliveries")
	if err != nil {
		return err
	}
	return printList(s, found, c.JSON, "There are no deliveries.", func(all []assign.Delivery) error {
		rows := make([][]string, len(all))
		for i, d := range all {
			rows[i] = []string{strconv.FormatInt(d.ID, 10), d.Type, cut(d.Item), d.State, strconv.Itoa(d.Attempts), minute(&d.CreatedAt), minute(d.NextAt), cut(textOf(d.Error)), d.Message}
		}
		return Table(s.Out, lean([]string{"ID", "TYPE", "ITEM", "STATE", "ATTEMPTS", "SINCE", "NEXT", "ERROR", "WEBHOOK-ID"}, &rows, 6), rows)
	})
}

type webhookRedriveCmd struct {
	webhookID  `embed:""`
	Deliveries []string `arg:"" optional:"" name:"delivery-id" help:"The deliveries to send again; without any, all dead ones."`
	Remote     `embed:""`
}

// Run sends dead events again.
func (c webhookRedriveCmd) Run(ctx context.Context, s *command.Streams) error {
	client, err := c.Connect(web.Manager)
	if err != nil {
		return err
	}
	body := map[string]any{}
	if len(c.Deliveries) > 0 {
		body["deliveries"] = c.Deliveries
	}
	var all struct {
		Count int `json:"count"`
	}
	for more := true; more; { // very many take several calls
		var done struct {
			Count int `json:"count"`
		}
		if _, err := client.Do(ctx, Call{Method: http.MethodPost, Path: c.path("/redrive"), Body: body}, &done); err != nil {
			return err
		}
		all.Count += done.Count
		more = done.Count >= assign.RedriveBatch
	}
	if c.JSON {
		return printJSON(s.Out, all)
	}
	_, err = fmt.Fprintf(s.Out, "To be sent again: %s.\n", counted(all.Count, "event"))
	return err
}

type webhookDeleteCmd struct {
	webhookID `embed:""`
	Yes       bool `help:"Don't ask."`
	Remote    `embed:""`
}

// Run deletes a web hook.
func (c webhookDeleteCmd) Run(ctx context.Context, s *command.Streams) error {
	if err := asks(c.Yes); err != nil {
		return err
	}
	client, err := c.Connect(web.Manager)
	if err != nil {
		return err
	}
	if err := ask(ctx, s, c.Yes, fmt.Sprintf("To be deleted: web hook %d, and the events that wait for it.", c.ID), "it was not deleted"); err != nil {
		return err
	}
	if _, err := client.Do(ctx, Call{Method: http.MethodDelete, Path: c.path("")}, nil); err != nil {
		return err
	}
	if c.JSON {
		return printJSON(s.Out, map[string]any{})
	}
	_, err = fmt.Fprintf(s.Out, "Web hook %d is deleted.\n", c.ID)
	return err
}
