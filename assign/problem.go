package assign

import "time"

// Problem is a refusal as clients receive it, in the form of RFC 9457: over REST, and in an error event of the live channel.
type Problem struct {
	Type   string  `json:"type"`
	Title  string  `json:"title"`
	Status int     `json:"status"`
	Detail string  `json:"detail,omitempty"`
	Errors []Field `json:"errors,omitempty"`
	LogIn  string  `json:"log_in,omitempty"` // where the caller can log in, as a path of this server

	After time.Duration `json:"-"` // how long the caller should wait before they try again; 0: the server decides
}

// problems has the type, title and status of each kind of refusal.
var problems = map[Kind]Problem{
	Invalid:          {Type: "/problems/invalid", Title: "The request is not valid", Status: 400},
	Unauthenticated:  {Type: "/problems/unauthenticated", Title: "Say who you are", Status: 401},
	LogInFailed:      {Type: "/problems/log-in-failed", Title: "The log-in failed", Status: 400},
	NameTaken:        {Type: "/problems/name-taken", Title: "The name belongs to somebody else", Status: 403},
	Forbidden:        {Type: "/problems/forbidden", Title: "Not allowed", Status: 403},
	NotFound:         {Type: "/problems/not-found", Title: "Not found", Status: 404},
	MethodNotAllowed: {Type: "/problems/method-not-allowed", Title: "This method is not allowed here", Status: 405},
	NotPending:       {Type: "/problems/not-pending", Title: "The request is not pending any more", Status: 409},
	AlreadyClosed:    {Type: "/problems/already-closed", Title: "The work is closed", Status: 409},
	LeaseLost:        {Type: "/problems/lease-lost", Title: "The lease is lost", Status: 409},
	NotAvailable:     {Type: "/problems/not-available", Title: "The item can't be handed out now", Status: 409},
	NoSlot:           {Type: "/problems/no-slot", Title: "All places are taken", Status: 409},
	Exists:           {Type: "/problems/exists", Title: "It exists already", Status: 409},
	InUse:            {Type: "/problems/in-use", Title: "It is in use", Status: 409},
	RunUnderWay:      {Type: "/problems/run-under-way", Title: "A run is under way", Status: 409},
	StaleVersion:     {Type: "/problems/stale-version", Title: "It was changed meanwhile", Status: 412},
	ChangedSet:       {Type: "/problems/stale-version", Title: "What it is about was changed meanwhile", Status: 409},
	NoVersion:        {Type: "/problems/stale-version", Title: "Say which version you change", Status: 428},
	TooLarge:         {Type: "/problems/too-large", Title: "Too large", Status: 413},
	Misdirected:      {Type: "/problems/invalid", Title: "This host name is not served here", Status: 421},
	TooSlow:          {Type: "/problems/invalid", Title: "The body came too slowly", Status: 408},
	QueryRefused:     {Type: "/problems/query-refused", Title: "The query is refused", Status: 422},
	KeyReused:        {Type: "/problems/idempotency-mismatch", Title: "The Idempotency-Key was used with another body", Status: 422},
	Busy:             {Type: "/problems/busy", Title: "Too many requests", Status: 429},
	RateLimited:      {Type: "/problems/rate-limited", Title: "Too many attempts", Status: 429},
	Internal:         {Type: "/problems/internal", Title: "Something went wrong here", Status: 500},
	Unavailable:      {Type: "/problems/unavailable", Title: "Not available now", Status: 503},
}

// TitleOf returns the title of a kind's problems.
func TitleOf(k Kind) string { return problems[k].Title }

// Problem returns the refusal as clients see it.
func (r *Refusal) Problem() Problem {
	p := problems[r.Kind]
	p.Detail, p.Errors, p.LogIn, p.After = r.Detail, r.Fields, r.LogIn, r.After
	return p
}
