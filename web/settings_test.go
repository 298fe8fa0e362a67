package web

import (
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"getwork/assign"
)

// newTask returns the settings of a new task as JSON has them.
func newTask(t *testing.T) (values map[string]any) {
	t.Helper()
	b, err := json.Marshal(assign.DefaultSettings())
	if err == nil {
		err = json.Unmarshal(b, &values)
	}
	if err != nil {
		t.Fatal(err)
	}
	return values
}

// The description of Settings has each setting, with its default and its limits; Task and Version have it, too.
func TestSettingsDescribed(t *testing.T) {
	t.Parallel()
	d, values := described(t), newTask(t)
	schemas := at(map[string]any(d), "components", "schemas")
	settings, _ := at(schemas, "Settings", "properties").(map[string]any)
	if len(settings) != len(assign.AllSettings) {
		t.Errorf("%d settings are described, and a task has %d", len(settings), len(assign.AllSettings))
	}
	for _, of := range assign.AllSettings {
		is, _ := settings[of.Name].(map[string]any)
		if is == nil {
			t.Errorf("%s is not described", of.Name)
			continue
		}
		if got, has := is["default"]; has && !cmp.Equal(got, values[of.Name]) || !has && of.New != "" {
			t.Errorf("%s is by default %v in the description, %v in a new task", of.Name, got, values[of.Name])
		}
		null, _ := json.Marshal(is)
		if may := strings.Contains(string(null), `"null"`); may != of.MayBeNull() {
			t.Errorf("%s may be null: %t in the description, %t in a task", of.Name, may, of.MayBeNull())
		}
		if least, most := numberOf(of.Least), numberOf(of.Most); !of.IsDuration() && least != nil && (is["minimum"] != *least || is["maximum"] != *most) {
			t.Errorf("%s is from %v to %v in the description, from %s to %s in a task", of.Name, is["minimum"], is["maximum"], of.Least, of.Most)
		}
		for _, schema := range []string{"Task", "Version"} {
			required, _ := at(schemas, schema, "required").([]any)
			withheld := schema == "Task" && (of.Name == "query" || of.Name == "recheck") // from who may not read queries
			if at(schemas, schema, "properties", of.Name) == nil || slices.Contains(required, any(of.Name)) == withheld {
				t.Errorf("%s: %s is missing, or not where it must be required", of.Name, schema)
			}
		}
	}
}

func numberOf(text string) *float64 {
	n, err := strconv.ParseFloat(strings.ReplaceAll(text, "_", ""), 64)
	if err != nil {
		return nil
	}
	return &n
}

// The page's form has each setting but paused, with its limits, and begins with the values of a new task.
func TestSettingsOfForm(t *testing.T) {
	t.Parallel()
	b, err := static.ReadFile("static/views/tasks/settings.js")
	if err != nil {
		t.Fatal(err)
	}
	source := string(b)
	fields := map[string]string{}
	for i, field := range strings.Split(source, "{ name: '") {
		if name, rest, _ := strings.Cut(field, "'"); i > 0 {
			fields[name], _, _ = strings.Cut(rest, "help:")
		}
	}
	values := newTask(t)
	_, defaults, _ := strings.Cut(source, "export const defaults = {")
	defaults, _, _ = strings.Cut(defaults, "};")
	begun := map[string]any{}
	for _, is := range regexp.MustCompile(`(\w+): ('[^']*'|\[\]|\w+)`).FindAllStringSubmatch(defaults, -1) {
		var v any
		if err := json.Unmarshal([]byte(strings.ReplaceAll(is[2], "'", `"`)), &v); err != nil {
			t.Fatal(is[0], err)
		}
		begun[is[1]] = v
	}
	values["version"], values["query"] = 0.0, "" // a form is empty, and never of an inbox
	if _, is := values["recheck"]; !is {
		values["recheck"] = nil
	}
	if diff := cmp.Diff(values, begun); diff != "" {
		t.Errorf("a form does not begin with the values of a new task (-task +form)\n%s", diff)
	}
	part := func(field, name string) string {
		if is := regexp.MustCompile(`\b` + name + `: '?([^',\n]+)`).FindStringSubmatch(field); is != nil {
			return strings.ReplaceAll(is[1], "_", "")
		}
		return ""
	}
	for _, of := range assign.AllSettings {
		field, is := fields[of.Name]
		if is == (of.Name == "paused") {
			t.Errorf("the form has %s: %t", of.Name, is)
		}
		if !is {
			continue
		}
		most, _, _ := strings.Cut(of.Most, " ")
		if kind := part(field, "kind"); kind == "list" {
			most = "" // readList has it, for all lists
		}
		single := part(field, "single") == "true" // a table of at most one row, which is empty without it
		if single {
			most = "1"
		}
		if least, to := part(field, "least"), part(field, "most"); least != of.Least || to != most {
			t.Errorf("%s is from %q to %q in the form, from %q to %q in a task", of.Name, least, to, of.Least, most)
		}
		if empty := strings.Contains(field, "none:"); empty != (of.MayBeNull() && !single && of.Name != "query" || part(field, "kind") == "list") {
			t.Errorf("%s may be empty in the form: %t", of.Name, empty)
		}
	}
}
