package web

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
)

// checkFields refuses fields that encoding/json accepts: a repeated field, of which it takes the last, and one that differs
// from its name in the case of letters. A program that reads the JSON first, such as a proxy that allows or logs calls, may
// have taken the other one. The JSON must be valid; v points to its destination.
func checkFields(body []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(body))
	return checkValue(d, reflect.TypeOf(v).Elem())
}

var unmarshaler = reflect.TypeFor[json.Unmarshaler]()

// checkValue reads one value of that type from d; a nil type means any.
func checkValue(d *json.Decoder, of reflect.Type) error {
	for of != nil && of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	if of != nil && (of.Implements(unmarshaler) || reflect.PointerTo(of).Implements(unmarshaler)) {
		of = nil // its decoder checks the names
	}
	token, err := d.Token()
	if err != nil {
		return err
	}
	switch token {
	case json.Delim('['):
		var element reflect.Type
		if of != nil && (of.Kind() == reflect.Slice || of.Kind() == reflect.Array) {
			element = of.Elem()
		}
		for d.More() {
			if err := checkValue(d, element); err != nil {
				return err
			}
		}
		_, err = d.Token()
	case json.Delim('{'):
		err = checkObject(d, of)
	}
	return err
}

func checkObject(d *json.Decoder, of reflect.Type) error {
	var names map[string]reflect.Type
	var value reflect.Type
	switch {
	case of == nil:
	case of.Kind() == reflect.Struct:
		names = map[string]reflect.Type{}
		addNames(names, of)
	case of.Kind() == reflect.Map:
		value = of.Elem()
	}
	seen := map[string]bool{}
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return err
		}
		name := token.(string) // an object's names are always strings
		if seen[name] {
			return refuseField(name, "the field %s occurs twice; send it once", name)
		}
		seen[name] = true
		field := value
		if names != nil {
			var known bool
			if field, known = names[name]; !known {
				return fmt.Errorf("json: unknown field %q", name)
			}
		}
		if err := checkValue(d, field); err != nil {
			return err
		}
	}
	_, err := d.Token()
	return err
}

// addNames adds the names of a struct's fields as encoding/json knows them.
func addNames(names map[string]reflect.Type, of reflect.Type) {
	for field := range of.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case name == "-":
		case name != "":
			names[name] = field.Type
		case field.Anonymous:
			embedded := field.Type
			if embedded.Kind() == reflect.Pointer {
				embedded = embedded.Elem()
			}
			addNames(names, embedded)
		case field.IsExported():
			names[field.Name] = field.Type
		}
	}
}
