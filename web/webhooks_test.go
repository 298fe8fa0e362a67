package web

import (
	"strings"
	"testing"

	"getwork/assign"
	"getwork/schema/schematest"
)

// Managers have the web hooks of tasks, administrators those of all tasks; a secret is shown when it is made and never again.
func TestWebhooks(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	n := start(t, stationOptions{identify: believe, rights: true})
	n.newTask(t, "verify", five, "")
	mia := Caller{Holder: assign.Holder{User: "mia"}, Role: Manager, By: "session", Groups: []string{}}.header(t)
	ada := Caller{Holder: assign.Holder{User: "ada"}, Admin: true, By: "session", Groups: []string{}}.header(t)
	tracy := Caller{Holder: assign.Holder{User: "tracy"}, Role: Observer, By: "session", Groups: []string{}}.header(t)
	type made struct{ ID, Secret string }
	const of, all = `{"task":"verify","url":"https://receiver.example/path-of-mia","events":["work.closed"]}`, `{"url":"https://receiver.example/path-of-ada"}`
	own := read[made](n.call(t, "POST", "/api/v1/webhooks", mia, of).want(201))
	global := read[made](n.call(t, "POST", "/api/v1/webhooks", ada, all).want(201))
	n.call(t, "POST", "/api/v1/webhooks", mia, all).refused(403, "forbidden")
	n.call(t, "POST", "/api/v1/webhooks", ada, of).refused(403, "forbidden")
	n.call(t, "POST", "/api/v1/webhooks", mia, strings.Replace(of, "verify", "none", 1)).refused(400, "invalid", "task")
	n.call(t, "POST", "/api/v1/webhooks", mia, strings.Replace(of, "https", "http", 1)).refused(400, "invalid", "url")
	n.call(t, "POST", "/api/v1/webhooks", mia, strings.Replace(of, "work.closed", "work.lost", 1)).refused(400, "invalid", "events")
	for caller, sees := range map[*headers]string{&mia: "path-of-mia", &ada: "path-of-ada"} {
		got := n.call(t, "GET", "/api/v1/webhooks", *caller, "").want(200).body
		if !strings.Contains(got, sees) || strings.Count(got, "path-of") != 1 || strings.Contains(got, "whsec_") {
			t.Errorf("the one with %s sees %s", sees, got)
		}
	}
	for _, call := range []string{"GET /deliveries", "POST /test", "POST /rotate", "POST /redrive", "DELETE "} {
		method, path, _ := strings.Cut(call, " ")
		n.call(t, method, "/api/v1/webhooks/"+global.ID+path, mia, "").refused(403, "forbidden")
		n.call(t, method, "/api/v1/webhooks/"+own.ID+path, ada, "").refused(403, "forbidden")
		n.call(t, method, "/api/v1/webhooks/"+own.ID+path, tracy, "").refused(403, "forbidden")
		n.call(t, method, "/api/v1/webhooks/999"+path, mia, "").refused(404, "not-found")
		status := map[string]int{"POST /test": 202, "DELETE ": 204}[call]
		if status == 0 {
			status = 200
		}
		body := n.call(t, method, "/api/v1/webhooks/"+own.ID+path, mia, "").want(status).body
		if strings.Contains(body, own.Secret) || strings.Contains(body, "whsec_") != (path == "/rotate") {
			t.Errorf("%s: %s", call, body)
		}
	}
	for _, body := range []string{`{"deliveries":null}`, `{"deliveries":["x"]}`} { // and not all of them
		n.call(t, "POST", "/api/v1/webhooks/"+global.ID+"/redrive", ada, body).refused(400, "invalid", "deliveries")
	}
	for _, body := range []string{`{"deliveries":[]}`, `{}`} {
		n.call(t, "POST", "/api/v1/webhooks/"+global.ID+"/redrive", ada, body).want(200)
	}
	n.call(t, "DELETE", "/api/v1/webhooks/"+global.ID, ada, "").want(204)
	var acts string
	if err := n.db.QueryRow(t.Context(), `select string_agg(act || ' by ' || actor, ', ' order by n) from getwork.audit where act like 'webhook%' and detail::text not like '%path-of%'`).Scan(&acts); err != nil {
		t.Fatal(err)
	}
	if want := "webhook.create by mia, webhook.create by ada, webhook.test by mia, webhook.rotate by mia, webhook.redrive by mia, webhook.delete by mia, webhook.redrive by ada, webhook.redrive by ada, webhook.delete by ada"; acts != want {
		t.Errorf("audited: %s", acts)
	}
}
