package assign

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Query is the SQL of a ranking query or a recheck. It is empty, and null in JSON, if the task has none.
type Query string

// MarshalJSON writes null for none.
func (q Query) MarshalJSON() ([]byte, error) {
	if q == "" {
		return []byte("null"), nil
	}
	return json.Marshal(string(q))
}

// UnmarshalJSON reads text or null. Empty text becomes a blank, so that Check refuses it; only null means no query.
func (q *Query) UnmarshalJSON(b []byte) error {
	var text *string
	if err := json.Unmarshal(b, &text); err != nil {
		return fmt.Errorf("a query is text, or null for none, not %s", b)
	}
	*q = ""
	if text != nil {
		*q = Query(*text)
		if *text == "" {
			*q = " "
		}
	}
	return nil
}

// MarshalYAML writes null for none.
func (q Query) MarshalYAML() (any, error) {
	if q == "" {
		return nil, nil
	}
	return string(q), nil
}

// Trimmed returns the query without white space around it and without one semicolon at its end, so that it can stand in
// brackets.
func (q Query) Trimmed() string {
	trimmed := strings.TrimSpace(string(q))
	return strings.TrimSpace(strings.TrimSuffix(trimmed, ";"))
}

// Settings are a task's settings, which managers change. The tags are the table of them, which [AllSettings] reads:
//
//   - json is a setting's name in the API and in files of tasks, and the name of its column in task_version;
//   - new is the value of a new task that does not name it;
//   - least and most are its limits, and null is what null means in a refusal;
//   - help, placeholder and the others are those of its flag, of getwork task create and update.
type Settings struct {
	Name        string `json:"name" placeholder:"NAME" help:"The task's name: a-z, 0-9 and hyphens, at most 63 of them."`
	Title       string `json:"title" most:"200 bytes" placeholder:"TEXT" help:"The name that people see."`
	Description string `json:"description" most:"10000 bytes" placeholder:"TEXT" help:"What to do with an item."`

	// Query ranks the items. It is null for an inbox.
	Query        Query    `json:"query,omitzero" most:"500000 bytes" type:"setting" xor:"query" placeholder:"SQL" help:"One SELECT that returns a column item, best first."`
	QueryTimeout Duration `json:"query_timeout" new:"2m" least:"1ms" most:"24h" placeholder:"2m" help:"How long the query may take; the default is 2m."`

	// FreshFor is how long a run's leftovers may be handed out, StaleFor how long after that, while the next run is under way.
	FreshFor Duration `json:"fresh_for" new:"0s" least:"0s" most:"24h" placeholder:"0s" help:"How long a result may serve later requests without running the query again; the default is 0s."`
	StaleFor Duration `json:"stale_for" new:"0s" least:"0s" most:"24h" placeholder:"0s" help:"How much longer it may serve them while the query runs again; the default is 0s."`

	Recheck Query `json:"recheck,omitzero" most:"500000 bytes" type:"setting" placeholder:"SQL" help:"A cheap SELECT that runs before items are handed out: given their keys as $1, a text[], it returns those that still match in a column item. With the default, none, a result is handed out unchecked while it is fresh."`

	// MaxCandidates is how many items of a run are kept, without those that are blocked.
	MaxCandidates int  `json:"max_candidates" new:"1000" least:"1" most:"1000000" placeholder:"1000" help:"How many items are taken from a result; the default is 1000."`
	MaxRequest    int  `json:"max_request" new:"5" least:"1" most:"1000" placeholder:"5" help:"How many items one request may ask for; the default is 5."`
	MaxOpen       *int `json:"max_open" least:"1" most:"1000000" null:"no limit" type:"setting" placeholder:"N" help:"How many items one user may hold; the default, none, means any number."`

	Lease *Duration `json:"lease" least:"1s" most:"168h" null:"none" type:"setting" placeholder:"1h" help:"How long work is held before it goes back, unless it is extended; the default, none, means until it is let go of."`
	Slots int       `json:"slots" new:"1" least:"1" most:"10000" placeholder:"1" help:"How many people may hold an item at a time, unless the item says otherwise; the default is 1."`

	// DoneBy is how many different users complete an item of an inbox before it is done. Once bars whoever completed an item of a query.
	DoneBy int  `json:"done_by" new:"1" least:"1" most:"100" placeholder:"1" help:"How many different people complete an item of an inbox before it is done, unless the item says otherwise; so many may hold it at a time. The default is 1."`
	Once   bool `json:"once" negatable:"" help:"Whoever completed an item does not get it again, although the query returns it."`

	MaxAttempts *int     `json:"max_attempts" least:"1" most:"1000000" null:"no limit" type:"setting" placeholder:"N" help:"After this many failures or expired leases an item is not handed out until a manager redrives it; the default, none, means that it always is."`
	Backoff     Duration `json:"backoff" new:"30s" least:"1ms" most:"24h" placeholder:"30s" help:"How long an item waits after its first failure; each further failure doubles it. The default is 30s."`
	RerunAfter  Duration `json:"rerun_after" new:"1m" least:"1s" most:"24h" placeholder:"1m" help:"How often the query may run for lingering requests; the default is every 1m."`

	ConflictsWith []string `json:"conflicts_with" most:"100 tasks" placeholder:"TASK" help:"Tasks, separated by commas: a user who holds or completed an item under one of them does not get it here, and the other way round. none means no task."`
	Groups        []string `json:"groups" most:"100 groups" placeholder:"GROUP" help:"Groups, separated by commas: only their members see the task and get its work. none means everybody."`

	Position *int     `json:"position" least:"-1000000" most:"1000000" null:"none" type:"setting" placeholder:"N" help:"The task's place among those that people see, lowest first; the default, none, means after those, by title."`
	Display  *Display `json:"display" type:"setting" placeholder:"JSON" help:"How an item is shown: JSON with title, url, fields and others, as in the API's Display. With the default, none, the types and names of its details decide."`

	// Notes says who sees, beside managers, how an item was let go of before: its holders, or nobody.
	Notes string `json:"notes" new:"holders" placeholder:"holders" help:"Who sees how an item was let go of before, with its notes, beside managers: holders, or managers for nobody; the default is holders."`

	// OnAway says what becomes of work whose holder is away.
	OnAway string `json:"on_away" new:"keep" placeholder:"keep" help:"What becomes of held work when its holder is away: keep for nothing, release to hand it out again, or to to give it to their substitute, if they have one who may have it; the default is keep."`
	// Requests over several tasks get from the task with the highest Priority first, and from those that are equal in turns.
	Priority int `json:"priority" new:"0" least:"-1000000" most:"1000000" placeholder:"0" help:"Who asks for the next item of any task gets one of the task with the highest number; the default is 0."`

	// Pick says whether people may ask for this task by name, or only for whatever comes next.
	Pick string `json:"pick" new:"any" placeholder:"any" help:"What people may ask for: any means this task and its items by name, next only the next item of all their tasks; the default is any."`

	// OnComplete sends a share of what is completed on to another task's inbox.
	OnComplete *OnComplete `json:"on_complete" type:"setting" placeholder:"JSON" help:"Where a share of what is completed goes, such as one in ten to a review: JSON with a task, which is an inbox, a share above 0 and at most 1, and when, if only completions with some codes count, such as {\"code\":[\"doubtful\"]}. The default, none, means nowhere."`

	// Outcomes are the reasons for which work is let go of; with RequireCode one must be named. Result are the fields of what it comes to.
	Outcomes    []Outcome     `json:"outcomes" most:"20 outcomes" type:"json" placeholder:"JSON" help:"Reasons to let go of work: JSON such as [{\"code\":\"no-answer\",\"label\":\"No answer\",\"do\":\"return\",\"after\":\"2h\"}]; the default, [], means none."`
	RequireCode bool          `json:"require_code" negatable:"" help:"Whoever lets go of work must name the code of an outcome."`
	Result      []ResultField `json:"result" most:"50 fields" type:"json" placeholder:"JSON" help:"Fields of the results that are kept: JSON such as [{\"name\":\"score\",\"type\":\"number\",\"min\":0,\"max\":10}]; the default, [], means none."`

	// AlertWaiting is how long somebody may wait unserved before it is an alert, and AlertBacklogAge how old the oldest ready item may be.
	AlertWaiting    Duration  `json:"alert_waiting" new:"5m" least:"10s" most:"168h" placeholder:"5m" help:"How long somebody may wait and be served by no node before it is an alert; the default is 5m."`
	AlertBacklogAge *Duration `json:"alert_backlog_age" least:"1m" most:"8760h" null:"no alert" type:"setting" placeholder:"4h" help:"How old the oldest item that can be handed out may be before it is an alert; the default, none, means any age."`

	// A task that is Paused hands out nothing; its pending requests go on waiting.
	Paused bool `json:"paused" negatable:"" help:"Hand out nothing."`
}

// Setting is what the tags of [Settings] say of one setting.
type Setting struct {
	Name  string       // in the API and in files of tasks, and of its column in task_version
	Type  reflect.Type // of its field
	New   string       // the value of a new task; empty: empty, false or null
	Least string       // the limits, of durations in Go's form; empty: none
	Most  string       // of text and lists it says of what, such as "100 tasks"
	Null  string       // what null means, if a number or a duration may be null

	field       int
	least, most int64
}

// AllSettings are all settings in the API's order.
var AllSettings = readSettings()

func readSettings() (all []Setting) {
	fields := reflect.TypeFor[Settings]()
	for i := range fields.NumField() {
		f := fields.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		of := Setting{Name: name, Type: f.Type, New: f.Tag.Get("new"), Least: f.Tag.Get("least"), Most: f.Tag.Get("most"), Null: f.Tag.Get("null"), field: i}
		of.least, of.most = of.number(of.Least), of.number(of.Most)
		all = append(all, of)
	}
	return all
}

// number reads a value of a tag.
func (of *Setting) number(text string) (n int64) {
	if text == "" {
		return 0
	}
	var err error
	if of.IsDuration() {
		var d time.Duration
		d, err = time.ParseDuration(text)
		n = int64(d)
	} else {
		count, _, _ := strings.Cut(text, " ")
		n, err = strconv.ParseInt(count, 10, 64)
	}
	if err != nil {
		panic(fmt.Sprintf("a tag of the setting %s: %v", of.Name, err))
	}
	return n
}

// In returns the setting's value in s, which can be set.
func (of *Setting) In(s *Settings) reflect.Value { return reflect.ValueOf(s).Elem().Field(of.field) }

// MayBeNull reports whether null is one of the setting's values. A list may be null in a body, too, and is then empty.
func (of *Setting) MayBeNull() bool {
	return of.Type.Kind() == reflect.Pointer || of.Type == reflect.TypeFor[Query]()
}

// IsDuration reports whether the setting is a [Duration], or null.
func (of *Setting) IsDuration() bool {
	return of.Type == reflect.TypeFor[Duration]() || of.Type == reflect.TypeFor[*Duration]()
}

// Limits is what a refusal says of a value beyond the limits; empty: there are none.
func (of *Setting) Limits() (detail string) {
	switch {
	case of.Least != "":
		detail = "from " + of.Least + " to " + of.Most
		if of.IsDuration() {
			detail = fmt.Sprintf("from %q to %q", of.Least, of.Most)
		}
		if of.Null != "" {
			detail += ", or null for " + of.Null
		}
	case of.Type.Kind() == reflect.Slice:
		detail = "at most " + of.Most
	case of.Most != "":
		detail = "a " + of.Name + " has at most " + of.Most
	}
	return detail
}

// beyond reports whether the setting's value in s is beyond the limits.
func (of *Setting) beyond(s *Settings) bool {
	v := of.In(s)
	if v.Kind() == reflect.Pointer {
		v = v.Elem() // not valid, and of no kind, if it is null
	}
	switch v.Kind() {
	case reflect.Int, reflect.Int64:
		return v.Int() < of.least || v.Int() > of.most
	case reflect.String, reflect.Slice:
		return of.Most != "" && int64(v.Len()) > of.most
	}
	return false
}

// Inbox reports whether the task has no query, and its items are pushed.
func (s *Settings) Inbox() bool { return s.Query == "" }

// Clone returns a copy that shares nothing with s, so that decoding JSON into it leaves s as it is.
func (s *Settings) Clone() Settings {
	c := *s
	for _, of := range AllSettings {
		v := of.In(&c)
		switch {
		case v.Kind() == reflect.Pointer && !v.IsNil():
			p := reflect.New(v.Type().Elem())
			p.Elem().Set(v.Elem())
			v.Set(p)
		case v.Kind() == reflect.Slice && !v.IsNil():
			v.Set(reflect.AppendSlice(reflect.MakeSlice(v.Type(), 0, v.Len()), v))
		}
	}
	return c
}

// DefaultSettings returns the values of settings that a new task does not name.
func DefaultSettings() (s Settings) {
	for _, of := range AllSettings {
		v := of.In(&s)
		switch v.Kind() {
		case reflect.Int, reflect.Int64:
			v.SetInt(of.number(of.New))
		case reflect.Slice:
			v.Set(reflect.MakeSlice(v.Type(), 0, 0))
		case reflect.String:
			v.SetString(of.New)
		}
	}
	return s
}

var slug = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)

// IsTaskName reports whether a task can have that name: a slug. Other text must not reach the database, which may be unable
// to store it.
func IsTaskName(name string) bool { return slug.MatchString(name) }

// Check returns a [Refusal] that names every wrong field, in the API's order. It sorts the groups, and removes repeated ones.
func (s *Settings) Check() error {
	for _, of := range AllSettings { // a list may be null
		if v := of.In(s); v.Kind() == reflect.Slice && v.IsNil() {
			v.Set(reflect.MakeSlice(v.Type(), 0, 0))
		}
	}
	slices.Sort(s.Groups)
	s.Groups = slices.Compact(s.Groups)
	var fields []Field
	wrong := func(bad bool, field, detail string) {
		if bad {
			fields = append(fields, Field{field, detail})
		}
	}
	wrong(!IsTaskName(s.Name), "name", "a name is 1 to 63 of a-z, 0-9 and hyphens, and does not begin with a hyphen")
	for _, of := range AllSettings {
		wrong(of.Type.Kind() == reflect.String && of.Name != "name" && strings.ContainsRune(of.In(s).String(), 0), of.Name, "text without NUL")
		wrong(of.beyond(s), of.Name, of.Limits())
	}
	wrong(s.Query != "" && s.Query.Trimmed() == "", "query", "a query is one SELECT that returns a column item, best first; null makes the task an inbox")
	wrong(s.Recheck != "" && s.Recheck.Trimmed() == "", "recheck", "a recheck is one SELECT on $1 text[] that returns the items that still match, or null for none")
	wrong(s.Notes != "holders" && s.Notes != "managers", "notes", `"holders" or "managers"`)
	wrong(s.OnAway != KeepAway && s.OnAway != ReleaseAway && s.OnAway != PassAway, "on_away", `"keep", "release" or "to"`)
	wrong(s.Pick != "any" && s.Pick != "next", "pick", `"any" or "next"`)
	wrong(s.Recheck != "" && s.Inbox(), "recheck", "an inbox has no query whose items could be checked again; its recheck is null")
	wrong(s.DoneBy > 1 && !s.Inbox(), "done_by", "1 for a task with a query, which decides itself when an item is done; once gives it to each user once")
	wrong(s.DoneBy > 1 && s.Slots > 1, "done_by", "1 beside several slots: so many people as complete an item may hold it at a time; leave out one of both")
	wrong(s.Once && s.Inbox(), "once", "false for an inbox, whose items are done when they are completed; done_by gives each to several people")
	wrong(slices.Contains(s.ConflictsWith, s.Name), "conflicts_with", "a task does not conflict with itself")
	for _, g := range s.Groups {
		wrong(CheckGroup(g) != nil, "groups", "a group has 1 to 128 bytes of UTF-8 without commas, control characters and blanks around it")
	}
	s.Display.check(wrong)
	s.OnComplete.check(s.Name, s.Outcomes, wrong)
	s.checkOutcomes(wrong)
	if len(fields) > 0 {
		at := func(f Field) int {
			return slices.IndexFunc(AllSettings, func(of Setting) bool { return of.Name == f.Field })
		}
		slices.SortStableFunc(fields, func(a, b Field) int { return cmp.Compare(at(a), at(b)) })
		return &Refusal{Kind: Invalid, Detail: fields[0].Field + ": " + fields[0].Detail, Fields: fields}
	}
	return nil
}
