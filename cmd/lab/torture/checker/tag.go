package checker

import (
	"net/http"
	"reflect"

	"getwork/cmd/lab/torture/history"
)

// judgeTags: one ETag stands for one answer. An answer that nothing has changed (304) gets the body of the first answer with that
// ETag, and is judged like any other from then on, so this comes before the bodies are sorted by what they are about.
func (t *trial) judgeTags() {
	first := map[string]int{}
	for _, i := range t.calls {
		c := t.entries[i].Call
		body, _ := t.bodies[i].(*requestBody)
		if body == nil || c.Tag == "" {
			continue
		}
		was, known := first[c.Tag]
		if !known {
			first[c.Tag] = i
		} else if !reflect.DeepEqual(t.bodies[was], body) {
			t.broken(ToldTheSame, []int{was, i}, "the ETag %s stands for two answers: of request %d, and of request %d", c.Tag,
				t.bodies[was].(*requestBody).ID, body.ID)
		}
	}
	for _, i := range t.calls {
		c := t.entries[i].Call
		if c.Kind != history.Status || c.Status != http.StatusNotModified {
			continue
		}
		t.judged("answers that nothing has changed")
		was, known := first[c.Match]
		if !known || t.bodies[was].(*requestBody).ID != c.Request {
			t.broken(ToldTheSame, []int{i}, "request %d was told not to have changed since %q, which nobody was told of it", c.Request, c.Match)
			continue
		}
		t.bodies[i] = t.bodies[was]
	}
}
