package identity

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"getwork/assign"
	"getwork/assign/rights"
	"getwork/schema/schematest/timeout"
	"getwork/web"
	"getwork/ws"
)

// One credential counts, and one that is no good is not passed over for another.
func TestOneCredential(t *testing.T) {
	t.Parallel()
	n := start(t)
	token, id := n.service(t, "robot", assign.RoleManager)
	good := "Bearer " + token
	for what, c := range map[string]struct {
		path    string
		headers []string
		status  int
	}{
		"a token":                      {"/api/v1/me", []string{"Authorization", good}, 200},
		"the scheme in small letters":  {"/api/v1/me", []string{"Authorization", "bearer " + token}, 200},
		"none":                         {"/api/v1/me", nil, 401},
		"two":                          {"/api/v1/me", []string{"Authorization", good, "Authorization", good}, 400},
		"a good one after a bad one":   {"/api/v1/me", []string{"Authorization", "Bearer gw_x", "Authorization", good}, 400},
		"another scheme":               {"/api/v1/me", []string{"Authorization", "Basic " + token}, 401},
		"no token":                     {"/api/v1/me", []string{"Authorization", "Bearer "}, 401},
		"a JSON web token":             {"/api/v1/me", []string{"Authorization", "Bearer a.b.c"}, 401},
		"a mistyped token":             {"/api/v1/me", []string{"Authorization", good + "x"}, 401},
		"in the address":               {"/api/v1/me?token=" + token, nil, 400},
		"in the address, otherwise":    {"/api/v1/me?access_token=" + token, []string{"Authorization", good}, 400},
		"a name":                       {"/api/v1/me", []string{"X-Getwork-User", "mia"}, 400},
		"a name beside a token":        {"/api/v1/me", []string{"X-Getwork-User", "mia", "Authorization", good}, 400},
		"a role beside a token":        {"/api/v1/me", []string{"X-Getwork-Role", "manager", "Authorization", good}, 400},
		"groups beside a token":        {"/api/v1/me", []string{"X-Getwork-Groups", "", "Authorization", good}, 400},
		"an instance beside a token":   {"/api/v1/me", []string{"X-Getwork-Instance", "i1", "Authorization", good}, 200},
		"a bad instance":               {"/api/v1/me", []string{"X-Getwork-Instance", "i 1", "Authorization", good}, 400},
		"the cookie of dev":            {"/api/v1/me", []string{"Cookie", "getwork_user_8080=user%3Dmia%26role%3Dmanager"}, 401},
		"the page, with a bad token":   {"/", []string{"Authorization", "Bearer gw_x"}, 200},
		"liveness, with a bad token":   {"/livez", []string{"Authorization", "Bearer gw_x"}, 200},
		"the description, without":     {"/openapi.json", nil, 200},
		"an address that is not there": {"/api/v1/none", []string{"Authorization", "Bearer gw_x"}, 401},
		"the socket, with a bad token": {"/api/v1/ws", []string{"Authorization", "Bearer gw_x", "Upgrade", "websocket"}, 401},
		"the stream, with a bad token": {"/api/v1/events", []string{"Authorization", "Bearer gw_x"}, 401},
		"readiness, without":           {"/readyz?verbose", nil, 200},
	} {
		status, answer := n.call(t, "GET", c.path, "", c.headers...)
		if status != c.status {
			t.Errorf("%s: %d %s, want %d", what, status, answer, c.status)
		}
		if strings.Contains(answer, token) {
			t.Errorf("%s: the answer has the token", what)
		}
	}
	if strings.Contains(n.log.String(), token) || strings.Contains(n.log.String(), token[16:]) {
		t.Error("the log has the token")
	}
	_, me := n.call(t, "GET", "/api/v1/me", "", bearer(token)...)
	got := decode[map[string]any](t, me)
	if got["user"] != "robot" || got["role"] != "manager" || got["admin"] != false || got["by"] != "token" || got["ends_at"] == nil {
		t.Errorf("me %s of %s", me, id)
	}
}

// A good credential works however many bad ones come from its address.
func TestGuessing(t *testing.T) {
	t.Parallel()
	n := start(t, func(c *Config) { c.Failed = web.NewAddressLimit(30) })
	token, id := n.service(t, "robot", assign.RoleManager)
	limited := 0
	for range 50 {
		if status, _ := n.call(t, "GET", "/api/v1/me", "", bearer("gw_x")...); status == 429 {
			limited++
		}
	}
	if limited < 15 || limited > 20 {
		t.Errorf("%d of 50 guesses were limited, want 20", limited)
	}
	if status, _ := n.call(t, "GET", "/api/v1/me", "", bearer(token)...); status != 200 {
		t.Errorf("a good token: %d", status)
	}
	if err := n.rights.EndToken(t.Context(), id, "ada", 0); err != nil {
		t.Fatal(err)
	}
	timeout.Await(t, "the end of the token", func() bool {
		status, _ := n.call(t, "GET", "/api/v1/me", "", bearer(token)...)
		return status == 401 // not 429: somebody whose token has just ended reads so
	})
}

// A handshake that is refused is answered as the description of the API says.
func TestRefusedHandshakeIsDescribed(t *testing.T) {
	t.Parallel()
	n := start(t)
	token, _ := n.service(t, "robot", assign.RoleManager)
	_, text := n.call(t, "GET", "/openapi.json", "")
	type answer struct {
		Ref     string `json:"$ref"`
		Content map[string]json.RawMessage
	}
	answers := decode[struct {
		Paths map[string]map[string]struct{ Responses map[string]answer }
	}](t, text).Paths["/api/v1/ws"]["get"].Responses
	shake := []string{"Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA=="}
	for what, c := range map[string]struct {
		status  int
		headers []string
	}{
		"no handshake":        {400, nil},
		"another version":     {400, []string{"Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "8"}},
		"another subprotocol": {400, append(shake, "Sec-WebSocket-Protocol", "getwork.v2")},
		"another site's page": {403, append(shake, "Sec-WebSocket-Protocol", "getwork.v1", "Origin", "https://evil.example")},
	} {
		r, err := http.NewRequestWithContext(t.Context(), "GET", n.URL+"/api/v1/ws", nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(c.headers); i += 2 {
			r.Header.Set(c.headers[i], c.headers[i+1])
		}
		r.Header.Set("Authorization", "Bearer "+token)
		response, err := n.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		kind := response.Header.Get("Content-Type")
		if response.StatusCode != c.status || kind != "application/problem+json" {
			t.Errorf("%s: %d %s", what, response.StatusCode, kind)
		}
		described, is := answers[fmt.Sprint(response.StatusCode)]
		if !is {
			described = answers["default"]
		}
		if described.Ref != "#/components/responses/Problem" && (described.Content[kind] == nil || len(described.Content) != 1) {
			t.Errorf("%s: %d %s, and described is %s", what, response.StatusCode, kind, described.Content)
		}
	}
	if _, is := answers["426"]; is {
		t.Error("426 is described, which nothing answers")
	}
}

// listen opens an event stream and returns its last event.
func listen(t *testing.T, n *station, token string) <-chan string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "GET", n.URL+"/api/v1/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	response, err := n.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	last := make(chan string, 1)
	snapshot := make(chan struct{})
	seen := sync.OnceFunc(func() { close(snapshot) })
	go func() {
		defer response.Body.Close()
		lines, line := bufio.NewScanner(response.Body), ""
		for lines.Scan() {
			if strings.HasPrefix(lines.Text(), "data: ") {
				line = lines.Text()
				if strings.Contains(line, `"snapshot"`) {
					seen()
				}
			}
		}
		last <- line
	}()
	<-snapshot
	return last
}

// A token for some tasks hears of these alone.
func TestNarrowTokensHearLittle(t *testing.T) {
	t.Parallel()
	n := start(t)
	all, _ := n.service(t, "robot", assign.RoleManager)
	for _, task := range []string{"mine", "other"} {
		n.call(t, "POST", "/api/v1/tasks", `{"name":"`+task+`","query":null}`, bearer(all)...)
		n.call(t, "POST", "/api/v1/tasks/"+task+"/items", `[{"item":"x"}]`, bearer(all)...)
		if status, answer := n.call(t, "POST", "/api/v1/tasks/"+task+"/requests", `{"count":1}`, bearer(all)...); status != 201 {
			t.Fatal(status, answer)
		}
	}
	narrow, _ := n.service(t, "robot", assign.RoleManager, func(made *rights.NewToken) { made.Tasks = []string{"mine"} })
	c, err := ws.Dial(t.Context(), nil, n.URL+"/api/v1/ws", http.Header{"Authorization": {"Bearer " + narrow}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	read := func() string { // anything but the announcement of the tasks above, which may be late
		for {
			m, err := c.Read(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if text := string(m); !strings.HasPrefix(text, `{"type":"tasks"`) {
				return text
			}
		}
	}
	read()
	if snapshot := read(); !strings.Contains(snapshot, `"mine"`) || strings.Contains(snapshot, `"other"`) {
		t.Errorf("snapshot %s", snapshot)
	}
	if err := c.Write(t.Context(), []byte(`{"type":"subscribe","tasks":["other"]}`)); err != nil {
		t.Fatal(err)
	}
	if answer := read(); !strings.Contains(answer, "not-found") {
		t.Errorf("subscribing to another task: %s", answer)
	}
	for _, task := range []string{"other", "mine"} { // in this order: had the other's event been sent, it would come first
		n.call(t, "POST", "/api/v1/tasks/"+task+"/items", `[{"item":"y"}]`, bearer(all)...)
		n.call(t, "POST", "/api/v1/tasks/"+task+"/requests", `{"count":1}`, bearer(all)...)
	}
	for {
		switch e := read(); {
		case strings.Contains(e, `"other"`):
			t.Fatalf("heard of another task: %s", e)
		case strings.Contains(e, `"mine"`):
			return
		}
	}
}
