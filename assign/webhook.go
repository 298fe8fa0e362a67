package assign

import "time"

// The types of events that a web hook can get.
const (
	WorkAssignedEvent = "work.assigned" // somebody got an item
	WorkClosedEvent   = "work.closed"   // it was let go of, in whatever way but by its lease
	WorkExpiredEvent  = "work.expired"  // its lease ran out
	RunFailedEvent    = "run.failed"    // the ranking query failed, or could not be brought to an end
	AlertBegunEvent   = "alert.begun"   // something is wrong with the task; see [Alert]
	AlertEndedEvent   = "alert.ended"   // that is over
	WebhookTestEvent  = "webhook.test"  // somebody tests the hook
)

// WebhookEvents are those that happen; a test is none.
var WebhookEvents = []string{WorkAssignedEvent, WorkClosedEvent, WorkExpiredEvent, RunFailedEvent, AlertBegunEvent, AlertEndedEvent}

// The forms in which a web hook can get events.
const (
	GetworkForm = "getwork" // as JSON that says everything
	SlackForm   = "slack"   // as a sentence for an Incoming Webhook of Slack
	TeamsForm   = "teams"   // as a card for a Workflow of Microsoft Teams
)

// WebhookForms are all forms.
var WebhookForms = []string{GetworkForm, SlackForm, TeamsForm}

// Webhook is a URL to which events are posted.
type Webhook struct {
	ID          int64      `json:"id,string"`
	Task        *string    `json:"task"` // null: all tasks
	URL         string     `json:"url"`
	Events      []string   `json:"events"`
	Form        string     `json:"form"`
	CreatedAt   time.Time  `json:"created_at"`
	CreatedBy   string     `json:"created_by"`
	FormerUntil *time.Time `json:"former_until"` // until then the secret before the last rotation signs, too
	Failures    int        `json:"failures"`     // in a row, up to now
	RetryAt     *time.Time `json:"retry_at"`     // nothing is sent before; null: nothing delays it
	Waiting     int64      `json:"waiting"`      // events; counted up to 1000
	Dead        int64      `json:"dead"`
}

// NewWebhook is a web hook to be made.
type NewWebhook struct {
	Task   *string  `json:"task"` // nil: all tasks
	URL    string   `json:"url"`
	Events []string `json:"events"` // nil: all; in the form of a chat, those of alerts
	Form   string   `json:"form"`   // empty: getwork's own
}

// RedriveBatch is how many dead events are redriven at once. A call that brings back fewer has left none, except what somebody was
// changing just then; one that brings back as many or more may have run out of time.
const RedriveBatch = 5000

// Delivery is an event that is posted to a web hook.
type Delivery struct {
	ID        int64      `json:"id,string"`
	Message   string     `json:"message"` // webhook-id
	Type      string     `json:"type"`
	Item      string     `json:"item,omitempty"`
	State     string     `json:"state"` // waiting, delivered or dead
	Attempts  int        `json:"attempts"`
	CreatedAt time.Time  `json:"created_at"`
	NextAt    *time.Time `json:"next_at"` // nothing is sent before, while it waits; null: it is due
	EndedAt   *time.Time `json:"ended_at"`
	Status    *int       `json:"status"` // of the last answer
	Error     *string    `json:"error"`  // of the last attempt
}
