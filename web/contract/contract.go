// Package contract is for tests: it holds messages of the live channel against the published description of them, web/asyncapi.json,
// with a validator of JSON Schema that others have written.
package contract

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Check returns what is not as described in a message, or nil. Clients must ignore members that they do not know; Check does not, so
// that a new member is described before it is sent.
func Check(kind string, message []byte) error {
	schema, err := compiled(kind)
	if err != nil {
		return err
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(message))
	if err != nil {
		return fmt.Errorf("read a %s message: %w", kind, err)
	}
	return schema.Validate(v)
}

var (
	mu      sync.Mutex
	schemas = map[string]*jsonschema.Schema{}
	source  = sync.OnceValues(load)
)

func compiled(kind string) (*jsonschema.Schema, error) {
	mu.Lock()
	defer mu.Unlock()
	if s := schemas[kind]; s != nil {
		return s, nil
	}
	c, err := source()
	if err != nil {
		return nil, err
	}
	s, err := c.Compile(address + "asyncapi.json#/components/schemas/" + kind)
	if err != nil {
		return nil, fmt.Errorf("asyncapi.json has no message %s that can be checked: %w", kind, err)
	}
	schemas[kind] = s
	return s, nil
}

// address stands for a node: the documents refer to each other by their names beside each other.
const address = "https://getwork.invalid/"

func load() (*jsonschema.Compiler, error) {
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.AssertFormat()
	_, here, _, _ := runtime.Caller(0)
	for _, name := range []string{"asyncapi.json", "openapi.json"} {
		b, err := os.ReadFile(filepath.Join(filepath.Dir(here), "..", name))
		if err != nil {
			return nil, fmt.Errorf("read the description: %w", err)
		}
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
		closeObjects(doc)
		if err := c.AddResource(address+name, doc); err != nil {
			return nil, fmt.Errorf("read %s: %w", name, err)
		}
	}
	return c, nil
}

// closeObjects allows only the properties that each schema lists, unless the schema says something else.
func closeObjects(v any) {
	switch v := v.(type) {
	case map[string]any:
		if _, listed := v["properties"].(map[string]any); listed && v["type"] == "object" {
			if _, said := v["additionalProperties"]; !said {
				v["additionalProperties"] = false
			}
		}
		for _, one := range v {
			closeObjects(one)
		}
	case []any:
		for _, one := range v {
			closeObjects(one)
		}
	}
}
