package identity

import (
	"log/slog"
	"net/http"
	"strings"
	"time"

	"getwork/assign/rights"
	"getwork/web"
	"getwork/web/card"
)

// Walls answers under /auth/wall, where a screen opens its link. See [rights.Registry.OpenWall].
type Walls struct {
	Rights *rights.Registry
	Cookie func(*http.Request) string                      // the session's cookie of a request, or nothing
	Keep   func(value string, ends time.Time) *http.Cookie // the cookie of a new session
	Refuse func(http.ResponseWriter, *http.Request, error) // answers with an error
	Log    *slog.Logger
}

// wallsPerMinute is how many links one address may open in a minute.
const wallsPerMinute = 10

// Routes returns the addresses.
func (s Walls) Routes() []web.Route {
	return []web.Route{
		{Method: http.MethodGet, Path: "/auth/wall", Handler: http.HandlerFunc(s.show)},
		{Method: http.MethodPost, Path: "/auth/wall", Handler: http.HandlerFunc(s.open), Limit: web.NewAddressLimit(wallsPerMinute)},
	}
}

// A link is opened by a person's click: programs that open links in mails and chats for their users must not use it up.
var opening = card.Page(`<h1>{{.Title}}</h1>
      <p>This browser will show how much there is to do, to everybody who sees it, and can do nothing else. If you are logged in here, you will be logged out. The link works once: open it on the screen itself.</p>
      <p><button id="open" class="primary" type="button" disabled>Show the wall</button></p>
      <p id="said" role="status"></p>`, `
  <script type="module" src="/static/screen.js"></script>`)

func (s Walls) show(w http.ResponseWriter, _ *http.Request) {
	setPage(w)
	_ = opening.Execute(w, struct{ Title string }{"Show the wall here?"}) // the browser may have gone
}

func (s Walls) open(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	var body struct {
		Code string `json:"code"`
	}
	if err := read(w, r, &body); err != nil {
		s.Refuse(w, r, err)
		return
	}
	from := web.ClientAddress(r)
	begun, err := s.Rights.OpenWall(r.Context(), body.Code, s.Cookie(r), from, strings.ToValidUTF8(r.UserAgent(), "?"))
	if rejection := rights.RejectionOf(err); rejection != nil {
		s.Log.Info("auth", "outcome", "refused", "method", "wall", "user", "-", "reason", rejection.Why, "address", from.String())
	}
	if err != nil {
		s.Refuse(w, r, err)
		return
	}
	s.Log.Info("auth", "outcome", "ok", "method", "wall", "user", begun.User, "address", from.String())
	http.SetCookie(w, s.Keep(begun.Cookie, begun.Ends))
	_ = write(w, map[string]string{"next": "/wall"})
}
