package contract

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
)

func asyncapi(t *testing.T) (d struct {
	Components struct {
		Messages map[string]struct {
			Payload  map[string]string
			Examples []struct{ Payload json.RawMessage }
		}
	}
	Operations map[string]struct {
		Action   string
		Messages []map[string]string
	}
}) {
	t.Helper()
	b, err := os.ReadFile("../asyncapi.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// Each message has an example that is as described.
func TestExamples(t *testing.T) {
	t.Parallel()
	for name, message := range asyncapi(t).Components.Messages {
		if name != "task" && len(message.Examples) == 0 || message.Payload["$ref"] != "#/components/schemas/"+name {
			t.Errorf("%s has no example, or another payload: %v", name, message.Payload)
		}
		for _, example := range message.Examples {
			if err := Check(name, example.Payload); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// What is sent is the same on sockets and on event streams, and is what the REST description calls a Message.
func TestBothChannelsSendTheSame(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("../openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	var openapi struct {
		Components struct {
			Schemas struct {
				Message struct {
					Properties struct{ Type struct{ Enum []string } }
				}
			}
		}
	}
	if err := json.Unmarshal(b, &openapi); err != nil {
		t.Fatal(err)
	}
	d := asyncapi(t)
	for _, operation := range []string{"sendOverSocket", "sendEvents"} {
		var got []string
		for _, ref := range d.Operations[operation].Messages {
			got = append(got, ref["$ref"][strings.LastIndex(ref["$ref"], "/")+1:])
		}
		if want := openapi.Components.Schemas.Message.Properties.Type.Enum; len(want) < 9 || !slices.Equal(got, want) {
			t.Errorf("%s has %v, want %v", operation, got, want)
		}
	}
}

// A message with a missing, a wrong or an unknown member is noticed.
func TestCheckFinds(t *testing.T) {
	t.Parallel()
	const hello = `{"type":"hello","hello":{"node":"a","user":"u","role":"worker","server_time":"2026-01-02T03:04:05Z"}}`
	if err := Check("hello", []byte(hello)); err != nil {
		t.Fatal(err)
	}
	for _, wrong := range [][2]string{{`"node":"a",`, ``}, {`"u"`, `1`}, {`"worker"`, `"boss"`}, {`05Z`, `05`}, {`"user"`, `"extra":1,"user"`}, {`{"type"`, `{"more":{},"type"`}} {
		if text := strings.Replace(hello, wrong[0], wrong[1], 1); Check("hello", []byte(text)) == nil {
			t.Errorf("%s passes", text)
		}
	}
	if Check("nothing", []byte(`{}`)) == nil {
		t.Error("a message that nobody described passes")
	}
}
