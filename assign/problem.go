package assign

// Problem is a refusal as clients receive it, in the form of RFC 9457: over REST, and in an error event of the live channel.
type Problem struct {
	Type   string  `json:"type"`
	Title  string  `json:"title"`
	Status int     `json:"status"`
	Detail string  `json:"detail,omitempty"`
	Errors []Field `json:"errors,omitempty"`
}

// problems has the type, title and status of each kind of refusal.
var problems = map[Kind]Problem{
	Invalid:          {"/problems/invalid", "The request is not valid", 400, "", nil},
	Unauthenticated:  {"/problems/unauthenticated", "Say who you are", 401, "", nil},
	Forbidden:        {"/problems/forbidden", "Not allowed", 403, "", nil},
	NotFound:         {"/problems/not-found", "Not found", 404, "", nil},
	MethodNotAllowed: {"/problems/method-not-allowed", "This method is not allowed here", 405, "", nil},
	NotPending:       {"/problems/not-pending", "The request is not pending any more", 409, "", nil},
	AlreadyClosed:    {"/problems/already-closed", "The work is closed", 409, "", nil},
	LeaseLost:        {"/problems/lease-lost", "The lease is lost", 409, "", nil},
	NotAvailable:     {"/problems/not-available", "The item can't be handed out now", 409, "", nil},
	NoSlot:           {"/problems/no-slot", "All places are taken", 409, "", nil},
	Exists:           {"/problems/exists", "It exists already", 409, "", nil},
	InUse:            {"/problems/in-use", "It is in use", 409, "", nil},
	RunUnderWay:      {"/problems/run-under-way", "A run is under way", 409, "", nil},
	StaleVersion:     {"/problems/stale-version", "It was changed meanwhile", 412, "", nil},
	ChangedSet:       {"/problems/stale-version", "What it is about was changed meanwhile", 409, "", nil},
	NoVersion:        {"/problems/stale-version", "Say which version you change", 428, "", nil},
	TooLarge:         {"/problems/too-large", "Too large", 413, "", nil},
	Misdirected:      {"/problems/invalid", "This host name is not served here", 421, "", nil},
	TooSlow:          {"/problems/invalid", "The body came too slowly", 408, "", nil},
	QueryRefused:     {"/problems/query-refused", "PostgreSQL refuses the query", 422, "", nil},
	KeyReused:        {"/problems/idempotency-mismatch", "The Idempotency-Key was used with another body", 422, "", nil},
	Busy:             {"/problems/busy", "Too many requests", 429, "", nil},
	Internal:         {"/problems/internal", "Something went wrong here", 500, "", nil},
	Unavailable:      {"/problems/unavailable", "Not available now", 503, "", nil},
}

// TitleOf returns the title of a kind's problems.
func TitleOf(k Kind) string { return problems[k].Title }

// Problem returns the refusal as clients see it.
func (r *Refusal) Problem() Problem {
	p := problems[r.Kind]
	p.Detail, p.Errors = r.Detail, r.Fields
	return p
}
