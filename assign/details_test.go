package assign

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// nested returns an object with so many levels.
func nested(levels int) string {
	return `{"a":` + strings.Repeat("[", levels-1) + strings.Repeat("]", levels-1) + `}`
}

func TestLimitsOfDetails(t *testing.T) {
	t.Parallel()
	text := func(n int) string { return `{"a":"` + strings.Repeat("x", n-8) + `"}` }
	for name, c := range map[string]struct {
		details string
		says    string
	}{
		"none":           {``, ""},
		"64 KiB":         {text(MaxDetails), ""},
		"a byte more":    {text(MaxDetails + 1), "at most 65536 bytes; these have 65537"},
		"64 levels":      {nested(MaxLevels), ""},
		"65 levels":      {nested(MaxLevels + 1), "at most 64 levels"},
		"10,001 levels":  {nested(10_001), "at most 64 levels"},
		"many, not deep": {`{"a":[` + strings.Repeat("{},", 1000) + `[]]}`, ""},
		"in text":        {`{"a":"` + strings.Repeat(`[{\"\\`, 100) + `"}`, ""},
	} {
		item := NewItem{Item: "a", Details: json.RawMessage("\n" + c.details)}
		wrong := item.Check()
		if c.says == "" && len(wrong) == 0 {
			continue
		}
		if len(wrong) != 1 || wrong[0].Field != "details" || c.says == "" || !strings.Contains(wrong[0].Detail, c.says) {
			t.Errorf("%s: %v", name, wrong)
		}
	}
}

func TestDeeper(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text    string
		levels  int
		element int
		deep    bool
	}{
		{`[1,{"a":[]},{"b":[[]]}]`, 3, 2, true},
		{`[1,{"a":[]},{"b":[[]]}]`, 4, 0, false},
		{`["[[[",{"a,":","},[[[]]]]`, 3, 2, true},
		{`[[[`, 2, 0, true},
		{`]]]{`, 1, 0, false},
	} {
		if element, deep := Deeper([]byte(c.text), c.levels); element != c.element || deep != c.deep {
			t.Errorf("%s: %d, %t", c.text, element, deep)
		}
	}
}

// What is left out is said, and details stay an object.
func TestLeftOut(t *testing.T) {
	t.Parallel()
	var w Work
	w.SetDetails(json.RawMessage(`{"a":1}`))
	request := Request{Work: []Work{w, w}}
	for name, e := range map[string]Event{
		"request":  {Type: "request", Body: &request, Request: &request},
		"work":     {Type: "work", Body: &w},
		"snapshot": {Type: "snapshot", Body: Pipeline{Work: []Work{w}}},
	} {
		for _, e := range []Event{e, e.Shared()} {
			whole, _ := e.AppendMessage(nil)
			bare, _ := e.WithoutDetails().AppendMessage(nil)
			again, _ := e.AppendMessage(nil)
			if string(whole) != string(again) || strings.Contains(string(whole), "left_out") || !strings.Contains(string(whole), `"details":{"a":1}`) {
				t.Errorf("%s, whole: %s, %s", name, whole, again)
			}
			if !strings.Contains(string(bare), `"details":{},`) || !strings.Contains(string(bare), `"details_left_out":true`) || strings.Contains(string(bare), `"a":1`) {
				t.Errorf("%s, bare: %s", name, bare)
			}
		}
	}
	if w.SetDetails(json.RawMessage(NoDetails)); string(w.Details) != "{}" || !w.DetailsLeftOut {
		t.Errorf("%+v", w)
	}
}

// A node holds large answers of 64 MiB, and a quarter of that for one user; small ones always find room.
func TestRoom(t *testing.T) {
	t.Parallel()
	const large = 8 << 20
	var r Room
	take := func(user string, n int, want bool) {
		t.Helper()
		if counted, ok := r.Take(user, n); ok != want || ok && n > small && counted != n {
			t.Errorf("%s takes %d: %d, %t", user, n, counted, ok)
		}
	}
	take("ann", large, true)
	take("ann", large, true)
	take("ann", small+1, false)
	take("ann", small, true)
	for _, user := range []string{"bob", "cid", "dan"} {
		take(user, large, true)
		take(user, large, true)
	}
	take("eve", small+1, false)
	take("eve", small, true)
	e := Event{Type: "work", Body: &Work{Details: json.RawMessage(`{"a":"` + strings.Repeat("x", small) + `"}`)}}
	if e, counted := r.Fit("eve", e); counted != 0 || !e.Body.(*Work).DetailsLeftOut {
		t.Errorf("an event is counted as %d: %+v", counted, e.Body)
	}
	r.Give("ann", large)
	if e, counted := r.Fit("eve", e); counted < small || e.Body.(*Work).DetailsLeftOut {
		t.Errorf("an event is counted as %d: %+v", counted, e.Body)
	}
	for _, user := range []string{"ann", "bob", "bob", "cid", "cid", "dan", "dan"} {
		r.Give(user, large)
	}
	r.Give("eve", r.users["eve"])
	if r.taken != 0 || len(r.users) != 0 {
		t.Errorf("left: %d, %v", r.taken, r.users)
	}
	take("ann", 100<<20, true) // alone: somebody must be able to read it
	take("ann", small+1, false)
}

// One answer carries 8 MiB, and what is smaller may still fit behind what doesn't.
func TestCarried(t *testing.T) {
	t.Parallel()
	var c Carried
	var fits []bool
	for _, n := range []int{MaxCarried - 10, 11, 10, 0, 1} {
		fits = append(fits, c.Fits(n))
	}
	if fmt.Sprint(fits) != "[true false true true false]" {
		t.Error(fits)
	}
}

func TestLoneSurrogate(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		`"plain"`:                         false,
		`"\ud83c\udf89"`:                  false,
		`"\uD83C\uDF89\ud83c\udf89 \n\""`: false,
		`"\\ud83c"`:                       false, // a backslash, and letters
		`"\ufffd"`:                        false,
		`"a\ud83c"`:                       true,
		`"\ud83c!"`:                       true,
		`"\ud83c\n"`:                      true,
		`"\ud83c\ud83c\udf89"`:            true,
		`"\udf89"`:                        true,
		`"\\\udf89"`:                      true,
		`{"a\uDF89":1}`:                   true,
		`"`:                               false,
		`\`:                               false,
		`"\ud8`:                           false,
	} {
		if got := LoneSurrogate([]byte(text)); got != want {
			t.Errorf("%s: %t, want %t", text, got, want)
		}
	}
}

func FuzzLoneSurrogate(f *testing.F) {
	f.Add(`"\ud83c`)
	f.Fuzz(func(_ *testing.T, text string) { LoneSurrogate([]byte(text)) })
}
