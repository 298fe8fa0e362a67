package assign

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

// What a display may not be is refused with the place of the mistake.
func TestDisplayRefused(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"title":"{borrower"}`:                                             "title names columns in braces",
		`{"title":"{ }"}`:                                                   "title names columns in braces",
		`{"one":"loan"}`:                                                    "one and many belong together",
		`{"others":"gone"}`:                                                 "others is folded, shown or hidden",
		`{"url":"http://loans.example/{item}"}`:                             "begins with one of https:",
		`{"url":"javascript:alert({item})"}`:                                "begins with one of https:",
		`{"url":"{item}"}`:                                                  "begins with one of https:",
		`{"url":"/loans/{item}"}`:                                           "begins with one of https:",
		`{"url":"https://{host}/x"}`:                                        "names its host itself",
		`{"url":"https://loans.example{host}/x"}`:                           "names its host itself",
		`{"url":"https://bank@evil.example/{item}"}`:                        "no user before it",
		`{"url":"https:loans/{item}"}`:                                      "needs a host",
		`{"url":"https://loans.example\\evil/{item}"}`:                      "not an address",
		`{"fields":[{"label":"x"}]}`:                                        "fields[0]: column names a column",
		`{"fields":[{"column":"a"},{"column":"a"}]}`:                        "fields[1] (a): this column stands there twice",
		`{"fields":[{"column":"a","format":"euro"}]}`:                       "fields[0] (a): format is one of",
		`{"fields":[{"column":"a","format":"money"}]}`:                      "money needs a currency",
		`{"fields":[{"column":"a","currency":"CHF"}]}`:                      "currency belongs to",
		`{"fields":[{"column":"a","badges":{"x":"bad"}}]}`:                  "badges belong to",
		`{"fields":[{"column":"a","stands_out":"a >"}]}`:                    "stands_out: a condition is",
		`{"fields":[{"column":"a","stands_out":"a ; b"}]}`:                  "stands_out: a condition is",
		`{"fields":[{"column":"a","format":"badge","badges":{"x":"red"}}]}`: `"x" has "red"`,
	} {
		s := DefaultSettings()
		s.Name, s.Display = "verify", &Display{}
		if err := json.Unmarshal([]byte(text), s.Display); err != nil {
			t.Fatal(err)
		}
		var refusal *Refusal
		if err := s.Check(); !errors.As(err, &refusal) || refusal.Fields[0].Field != "display" || !strings.Contains(refusal.Detail, want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	s := DefaultSettings()
	s.Name, s.Display = "verify", &Display{Title: "{borrower}, {city}", URL: "https://loans.example:8443/a/{item}?b={b}#{c}", Fields: []DisplayField{
		{Column: "amount", Format: "money", Currency: "CHF", StandsOut: "amount >= 1000.5"}, {Column: "state", Format: "badge", Badges: map[string]string{"late": "bad"}},
	}}
	if err := s.Check(); err != nil {
		t.Error(err)
	}
}

// A value stands out by its own or another column, whether it is a number, text or yes.
func TestCondition(t *testing.T) {
	t.Parallel()
	var details map[string]any
	if err := json.Unmarshal([]byte(`{"wrong":2,"gap":-0.5,"none":0,"text":"12.5","state":"late","odd":"NaN","checked":false,"paid":true,"nothing":null,"empty":""}`), &details); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{
		"wrong > 0": true, "wrong>2": false, "wrong >= 2": true, "wrong = 2": true, "wrong != 2": false, "wrong < 3": true, "wrong <= 1": false,
		"gap < 0": true, "gap = -0.5": true, "text > 12": true, "state = 'late'": true, `state != "late"`: false, "state > 3": false,
		"odd = 0": false, "odd >= 5": false, "odd <= 5": false, "odd != 0": false, "odd": true,
		"checked": false, "paid": true, "none": false, "wrong": true, "empty": false, "state": true, "nothing": false, "missing": false,
		"checked = false": true, "paid = true": true, "nothing = 0": false, "missing != 'x'": false,
	} {
		c, err := ParseCondition(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
		} else if got := c.Holds(details); got != want {
			t.Errorf("%s is %v", text, got)
		}
	}
}

// Values can't leave their place in an address.
func TestDisplayLink(t *testing.T) {
	t.Parallel()
	d := &Display{URL: "https://loans.example/{item}/of?name={name}&n={n}&none={none}"}
	got := d.Link("2026/1 7", map[string]any{"name": "Ann & Bo?#%", "n": json.Number("12"), "none": nil})
	if want := "https://loans.example/2026%2F1%207/of?name=Ann%20%26%20Bo%3F%23%25&n=12&none="; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
