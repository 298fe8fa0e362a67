package hook

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"getwork/assign"
)

// inForm returns an event's body in the form that its receiver understands.
func inForm(form string, body []byte) []byte {
	var shaped any
	switch form {
	case assign.SlackForm:
		// & < > alone are special to Slack: <!channel> would call everybody.
		shaped = map[string]string{"text": strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(sentence(body))}
	case assign.TeamsForm:
		// A text run has no markup, so that no key of an item becomes a link.
		type object = map[string]any
		shaped = object{"type": "message", "attachments": []object{{
			"contentType": "application/vnd.microsoft.card.adaptive",
			"contentUrl":  nil,
			"content": object{"$schema": "http://adaptivecards.io/schemas/adaptive-card.json", "type": "AdaptiveCard", "version": "1.2",
				"body": []object{{"type": "RichTextBlock", "inlines": []object{{"type": "TextRun", "text": sentence(body)}}}}},
		}}}
	default:
		return body
	}
	b, err := json.Marshal(shaped)
	if err != nil { // nothing in it can't be encoded
		return body
	}
	return b
}

// sentence says in English what happened.
func sentence(body []byte) string {
	var e struct {
		Type string
		Data struct {
			Task, Item, User, State, Webhook string
			Kind                             assign.AlertKind
			Since                            time.Time
			Count                            int64
		}
	}
	if err := json.Unmarshal(body, &e); err != nil {
		return "getwork: something happened that can't be read"
	}
	d := &e.Data
	since := d.Since.UTC().Format("2 January 15:04 UTC")
	switch e.Type {
	case assign.WebhookTestEvent:
		return fmt.Sprintf("getwork: this is a test of web hook %s.", d.Webhook)
	case assign.RunFailedEvent:
		return d.Task + ": a run of its query failed."
	case assign.WorkAssignedEvent:
		return fmt.Sprintf("%s: item %s went to %s.", d.Task, d.Item, d.User)
	case assign.WorkClosedEvent:
		return fmt.Sprintf("%s: item %s of %s: %s.", d.Task, d.Item, d.User, d.State)
	case assign.WorkExpiredEvent:
		return fmt.Sprintf("%s: the lease of item %s of %s ran out.", d.Task, d.Item, d.User)
	case assign.AlertEndedEvent:
		return fmt.Sprintf("%s: over: %s, since %s.", d.Task, d.Kind, since)
	case assign.AlertBegunEvent:
		switch d.Kind {
		case assign.AlertFailing:
			return fmt.Sprintf("%s: failing: its query has failed since %s.", d.Task, since)
		case assign.AlertUnserved:
			return fmt.Sprintf("%s: unserved: people wait, and nobody has been served since %s.", d.Task, since)
		case assign.AlertLate:
			return fmt.Sprintf("%s: late: the deadline of items is over, of the first since %s; items: %d.", d.Task, since, d.Count)
		case assign.AlertBacklog:
			return fmt.Sprintf("%s: backlog: the oldest item has been there since %s; items: %d.", d.Task, since, d.Count)
		}
		return fmt.Sprintf("%s: %s since %s.", d.Task, d.Kind, since)
	}
	return strings.TrimPrefix(d.Task+": "+e.Type, ": ") // of a newer node
}
