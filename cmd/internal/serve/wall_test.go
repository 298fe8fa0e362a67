package serve

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/schema/schematest"
	"getwork/schema/schematest/timeout"
)

// post sends JSON as the page does.
func (b *browser) post(at *bank, path, body string) (status int, text string) {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), http.MethodPost, at.url+path, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	for name, value := range b.cookies {
		r.AddCookie(&http.Cookie{Name: name, Value: value})
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Origin", at.url)
	response, err := plain.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer response.Body.Close()
	all, err := io.ReadAll(response.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, c := range response.Cookies() {
		if !strings.HasPrefix(c.Name, "__Host-") || !c.Secure || !c.HttpOnly || c.SameSite != http.SameSiteLaxMode {
			b.t.Errorf("cookie %v", c)
		}
		b.cookies[c.Name] = c.Value
	}
	return response.StatusCode, string(all)
}

// Ada makes a link for a screen. Looking at it, as programs do that preview links, does not use it up; the first browser whose user
// confirms shows counts, and no other. Ada ends it like any session. Its code is neither in the log nor in the database.
func TestWallByLink(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	at := newBank(t)
	ada, mia, screen := newBrowser(t), newBrowser(t), newBrowser(t)
	ada.logIn(at, "0004", "/")
	mia.logIn(at, "0003", "/")
	if status, text := mia.post(at, "/api/v1/walls", `{}`); status != 403 {
		t.Errorf("a link by a manager: %d %s", status, text)
	}
	if status, text := ada.post(at, "/api/v1/walls", `{"expires_in":"721h"}`); status != 400 {
		t.Errorf("for more than 30 days: %d %s", status, text)
	}
	status, text := ada.post(at, "/api/v1/walls", `{"user":"lobby","expires_in":"48h"}`)
	var made struct{ URL, ID string }
	if err := json.Unmarshal([]byte(text), &made); err != nil || status != 201 {
		t.Fatalf("%d %s %v", status, text, err)
	}
	address, code, _ := strings.Cut(made.URL, "#")
	if address != at.url+"/auth/wall" || len(code) != 43 {
		t.Fatal(made.URL)
	}
	for range 3 {
		if r, body := screen.call("GET", address, "Sec-Fetch-Site", "cross-site"); r.StatusCode != 200 || r.Header.Get("Cache-Control") != "no-store" || !strings.Contains(body, "Show the wall") {
			t.Fatalf("looking at the link: %d %s", r.StatusCode, body)
		}
	}
	if r, _ := screen.call("POST", address, "Origin", "https://evil.example"); r.StatusCode != 403 {
		t.Errorf("another site's page opens it: %d", r.StatusCode)
	}
	if status, text := screen.post(at, "/auth/wall", `{"code":"`+code+`"}`); status != 200 || !strings.Contains(text, `"/wall"`) {
		t.Fatalf("opening it: %d %s", status, text)
	}
	if status, text := newBrowser(t).post(at, "/auth/wall", `{"code":"`+code+`"}`); status != 400 {
		t.Errorf("opening it again: %d %s", status, text)
	}
	if r, body := screen.call("GET", at.url+"/api/v1/me"); r.StatusCode != 200 || !strings.Contains(body, `"wall":true`) || strings.Contains(body, "idle_at") {
		t.Errorf("me: %d %s", r.StatusCode, body)
	}
	for path, want := range map[string]int{"/api/v1/tasks": 200, "/api/v1/work": 403, "/api/v1/requests": 403, "/api/v1/sessions": 403, "/api/v1/tokens": 403,
		"/auth/cli?challenge=" + strings.Repeat("a", 43) + "&port=5000&label=x": 403} {
		if r, body := screen.call("GET", at.url+path); r.StatusCode != want {
			t.Errorf("%s: %d %s", path, r.StatusCode, body)
		}
	}
	if r, body := ada.call("GET", at.url+"/api/v1/sessions?user=lobby"); !strings.Contains(body, `"wall":true`) || !strings.Contains(body, made.ID) {
		t.Errorf("sessions: %d %s", r.StatusCode, body)
	}
	if r, body := ada.call("GET", at.url+"/api/v1/audit?act=wall.create"); !strings.Contains(body, `"actor":"Ada"`) || strings.Contains(body, code) {
		t.Errorf("audit: %d %s", r.StatusCode, body)
	}
	if r, body := ada.call("DELETE", at.url+"/api/v1/sessions/"+made.ID, "Origin", at.url); r.StatusCode != 204 {
		t.Errorf("ending it: %d %s", r.StatusCode, body)
	}
	began := time.Now()
	timeout.Await(t, "the screen's end", func() bool { _, _, _, status := screen.me(at); return status == 401 })
	if took := time.Since(began); took > timeout.Scale(2*time.Second) {
		t.Errorf("it ended after %v", took)
	}
	if at.said(code) > 0 {
		t.Error("the log has the code")
	}
	db, err := pgx.Connect(t.Context(), at.database)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close(context.WithoutCancel(t.Context()))
	var stored int
	if err := db.QueryRow(t.Context(), `select count(*) from getwork.session s, getwork.audit a where strpos(s::text || a::text, $1) > 0 or strpos(s::text || a::text, encode(convert_to($1, 'UTF8'), 'hex')) > 0`, code).Scan(&stored); err != nil || stored > 0 {
		t.Errorf("the database has the code in %d rows, %v", stored, err)
	}
}
