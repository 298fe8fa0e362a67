package ranking

import (
	"encoding/json"
	"maps"
	"reflect"
	"testing"
)

func TestDetailsOf(t *testing.T) {
	t.Parallel()
	for row, want := range map[string]string{
		`{"item":1}`:                                                   `{}`,
		`{"item":"a","note":"x"}`:                                      `{"note":"x"}`,
		`{"note":"x","item":"a"}`:                                      `{"note":"x"}`,
		`{"z":1,"slots":3,"a":null}`:                                   `{"z":1,"a":null}`,
		`{"exclusive":"g","items":[1,2]}`:                              `{"items":[1,2]}`,
		`{"a":{"item":1},"item":2,"b":"},"}`:                           `{"a":{"item":1},"b":"},"}`,
		`{"a":"\"item\":","item":"\\","b":"\",\"item\":1"}`:            `{"a":"\"item\":","b":"\",\"item\":1"}`,
		`{"a": [ {"x" : "]" } , 2 ],"item":{"k": [1, "}"]},"c":"ä\\"}`: `{"a": [ {"x" : "]" } , 2 ],"c":"ä\\"}`,
		`{"\"item":1,"Item":2}`:                                        `{"\"item":1,"Item":2}`,
	} {
		if got := DetailsOf(row); got != want {
			t.Errorf("of %s: %s, want %s", row, got, want)
		}
	}
}

// Whatever a row holds: what is left is the row without three members.
func FuzzDetailsOf(f *testing.F) {
	f.Add("a", `"x"`, "item", `{"b":[1,"\\"]}`)
	f.Add("slots", `1`, `",item`, `null`)
	f.Fuzz(func(t *testing.T, name, value, other, more string) {
		if !json.Valid([]byte(value)) || !json.Valid([]byte(more)) || name == other || name == "item" {
			t.Skip()
		}
		n, _ := json.Marshal(name)
		o, _ := json.Marshal(other)
		if string(n) == string(o) { // not UTF-8: both are replaced
			t.Skip()
		}
		row := `{` + string(n) + `:` + value + `,"item":"k",` + string(o) + `:` + more + `}`
		var want, got map[string]any
		if json.Unmarshal([]byte(row), &want) != nil {
			t.Skip()
		}
		if err := json.Unmarshal([]byte(DetailsOf(row)), &got); err != nil {
			t.Fatalf("of %s: %v", row, err)
		}
		maps.DeleteFunc(want, func(k string, _ any) bool { return k == "item" || k == "slots" || k == "exclusive" })
		if !reflect.DeepEqual(got, want) {
			t.Errorf("of %s: %v, want %v", row, got, want)
		}
	})
}
