package main

import (
	"encoding/json"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"getwork/assign"
)

// docs/tasks.md lists each setting of a task once, in the order of the API, with its default.
func TestTaskSettings(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/tasks.md")
	if err != nil {
		t.Fatal(err)
	}
	defaults, err := json.Marshal(assign.DefaultSettings())
	if err != nil {
		t.Fatal(err)
	}
	var values map[string]json.RawMessage
	if err := json.Unmarshal(defaults, &values); err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile("(?m)^\\| `(\\w+)` \\|(?: `(.*?)`)? \\|").FindAllStringSubmatch(string(page), -1)
	fields := reflect.TypeFor[assign.Settings]()
	if len(rows) != fields.NumField() {
		t.Fatalf("it has %d settings, and a task has %d", len(rows), fields.NumField())
	}
	for i, row := range rows {
		name, _, _ := strings.Cut(fields.Field(i).Tag.Get("json"), ",")
		want := string(values[name])
		switch {
		case want == "": // left out: null
			want = "null"
		case name == "name": // has none
			want = ""
		}
		if row[1] != name || row[2] != want {
			t.Errorf("row %d has %s, by default %s; want %s and %s", i+1, row[1], row[2], name, want)
		}
	}
}
