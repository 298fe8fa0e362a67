package main

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"getwork/assign"
)

// docs/tasks.md lists each setting of a task once, in the order of the API, with its default and its limits.
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
	rows := regexp.MustCompile("(?m)^\\| `(\\w+)` \\|(?: `(.*?)`)? \\| (.*?) \\|").FindAllStringSubmatch(string(page), -1)
	if len(rows) != len(assign.AllSettings) {
		t.Fatalf("it has %d settings, and a task has %d", len(rows), len(assign.AllSettings))
	}
	for i, row := range rows {
		of := assign.AllSettings[i]
		want := string(values[of.Name])
		if of.Name == "name" { // has none
			want = ""
		}
		if row[1] != of.Name || row[2] != want {
			t.Errorf("row %d has %s, by default %s; want %s and %s", i+1, row[1], row[2], of.Name, want)
		}
		var limits string
		switch {
		case of.IsDuration():
			limits = fmt.Sprintf("`%q` to `%q`", of.Least, of.Most)
		case of.Least != "":
			limits = of.Least + " to " + of.Most
		case of.Most != "" && of.Name != "query" && of.Name != "recheck":
			limits = "at most " + of.Most
		default:
			continue
		}
		if got := strings.ReplaceAll(row[3], ",", ""); got != limits {
			t.Errorf("%s: there may stand %q; want %q", of.Name, got, limits)
		}
	}
}
