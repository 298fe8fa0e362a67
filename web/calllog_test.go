package web

import (
	"regexp"
	"strings"
	"testing"
)

// Each call has a line that names who called, the task, the request and the trace, and nothing of the item.
func TestCallLog(t *testing.T) {
	t.Parallel()
	var log buffer
	n := start(t, stationOptions{log: &log, logCalls: true})
	n.newTask(t, "verify", five, "")
	const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	n.call(t, "POST", "/api/v1/tasks/verify/requests", as("oliver", "Prefer", "wait=60", "Traceparent", "00-"+trace+"-00f067aa0ba902b7-01"), `{"count":1}`).want(201)
	n.call(t, "GET", "/api/v1/requests/1", as("oliver", "Traceparent", "00-no-trace"), "").want(200)
	n.call(t, "POST", "/api/v1/tasks/verify/items/loan%2F3/claim", as("tracy"), "{}").want(201)
	n.call(t, "GET", "/nothing", as("tracy"), "").want(404)
	text := regexp.MustCompile(`time=\S+ level=INFO |seconds=[0-9.e-]+ `).ReplaceAllString(log.String(), "")
	for _, want := range []string{
		"msg=call method=POST route=/api/v1/tasks/{task}/requests status=201 user=oliver task=verify request=1 trace=" + trace + "\n",
		"msg=call method=GET route=/api/v1/requests/{id} status=200 user=oliver request=1\n",
		"msg=call method=POST route=/api/v1/tasks/{task}/items/{item}/claim status=201 user=tracy task=verify\n",
		"msg=call method=GET route=\"\" status=404 user=tracy\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no line %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "loan") {
		t.Errorf("an item is named in\n%s", text)
	}
}
