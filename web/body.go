package web

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"getwork/assign"
)

// bodyPatience is how long a call's body may take to come.
const bodyPatience = 5 * time.Second

// maxLogInBody is what bodies of log-ins have at most, whose senders nobody knows yet. A log-out message may have 64 KiB, and its own
// handler refuses more.
const maxLogInBody = 65 << 10

// receive reads a call's body, of at most so many bytes, before the call takes its place. A slow body would otherwise occupy the
// place, and keep other calls out.
func receive(w http.ResponseWriter, r *http.Request, most int64) error {
	if r.Body == nil || r.Body == http.NoBody {
		return nil
	}
	c := http.NewResponseController(w)
	_ = c.SetReadDeadline(time.Now().Add(bodyPatience)) // fails only for a test's recorder, which is not slow
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	if err == nil { // after an error it stays: net/http reads on before it answers or closes, and would wait for ever
		_ = c.SetReadDeadline(time.Time{})
	}
	var large *http.MaxBytesError
	switch {
	case err == nil:
		r.Body = io.NopCloser(bytes.NewReader(body))
		return nil
	case errors.As(err, &large):
		return assign.Refuse(assign.TooLarge, "a body has at most %d bytes", most)
	case errors.Is(err, os.ErrDeadlineExceeded):
		w.Header().Set("Connection", "close") // the rest of the body may still come
		return assign.Refuse(assign.TooSlow, "the body did not come within %s; send it at once", bodyPatience)
	}
	return assign.Refuse(assign.Invalid, "the body broke off: %v; send it again", err)
}

const maxBody = 1 << 20

// decode reads a JSON body of at most 1 MiB into v. It refuses unknown fields and trailing data.
func decode(w http.ResponseWriter, r *http.Request, v any) error {
	body, err := readBody(w, r, v)
	if err != nil {
		return err
	}
	return decodeBytes(body, v)
}

// readBody reads a body of at most 1 MiB, which is to be decoded into v.
func readBody(w http.ResponseWriter, r *http.Request, v any) ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		return nil, badBody(err, v)
	}
	return body, nil
}

// decodeIfAny is decode for calls that need no body: without one v stays as it is.
func decodeIfAny(w http.ResponseWriter, r *http.Request, v any) error {
	body, err := readBody(w, r, v)
	if err != nil {
		return err
	}
	if len(bytes.TrimSpace(body)) == 0 {
		return nil
	}
	return decodeBytes(body, v)
}

func decodeBytes(body []byte, v any) error {
	if !utf8.Valid(body) { // encoding/json would replace invalid bytes, so that two keys could become one
		return assign.Refuse(assign.Invalid, "the text is not UTF-8; encode it in UTF-8")
	}
	err := strictly(body, v)
	if err == nil {
		err = checkFields(body, v)
	}
	if err == nil && string(bytes.TrimSpace(body)) == "null" { // null would leave v as it is
		err = &json.UnmarshalTypeError{Value: "null"}
	}
	if err == nil && hasNUL(body) {
		err = assign.Refuse(assign.Invalid, "a text has the character NUL (\\u0000), which PostgreSQL can't keep; leave it out")
	}
	if err == nil && assign.LoneSurrogate(body) {
		err = assign.Refuse(assign.Invalid, "a text has half of a character (\\ud800 to \\udfff without the other half); send both halves or none")
	}
	if err != nil {
		if field, wrong := spoiled(body, v); field != "" {
			return refuseField(field, "%s: %v", field, wrong)
		}
	}
	return badBody(err, v)
}

func strictly(body []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, more := d.Token(); !errors.Is(more, io.EOF) {
		return errors.New("there is something after the JSON value")
	}
	return nil
}

// spoiled returns the first field whose own decoder fails, such as a duration's, and its error: encoding/json does not
// name the field. It returns "" if there is none.
func spoiled(body []byte, v any) (field string, wrong error) {
	var kind *json.UnmarshalTypeError
	var date *time.ParseError
	var fields map[string]json.RawMessage
	if json.Unmarshal(body, &fields) != nil {
		return "", nil
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		one, err := json.Marshal(map[string]json.RawMessage{name: fields[name]})
		if err == nil {
			err = json.Unmarshal(one, reflect.New(reflect.TypeOf(v).Elem()).Interface())
		}
		switch {
		case errors.As(err, &date):
			return name, fmt.Errorf("a time has the form of RFC 3339, such as 2030-01-31T09:00:00Z, not %s", date.Value)
		case err != nil && !errors.As(err, &kind):
			return name, err
		}
	}
	return "", nil
}

// hasNUL reports whether a string in valid JSON has a NUL, which PostgreSQL's text can't contain.
func hasNUL(body []byte) bool {
	if !bytes.Contains(body, []byte(`\u0000`)) {
		return false
	}
	d := json.NewDecoder(bytes.NewReader(body))
	for {
		token, err := d.Token()
		if err != nil {
			return false
		}
		if text, ok := token.(string); ok && strings.ContainsRune(text, 0) {
			return true
		}
	}
}

// badBody returns the refusal for an error of decoding a body into v.
func badBody(err error, v any) error {
	var large *http.MaxBytesError
	var kind *json.UnmarshalTypeError
	var refusal *assign.Refusal
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refusal):
		return refusal
	case errors.As(err, &large):
		return assign.Refuse(assign.TooLarge, "a body has at most %d bytes", maxBody)
	case errors.Is(err, io.EOF):
		return assign.Refuse(assign.Invalid, "the body is empty; send JSON")
	case errors.As(err, &kind) && kind.Field == "":
		want := "object"
		if reflect.TypeOf(v).Elem().Kind() == reflect.Slice {
			want = "array"
		}
		return assign.Refuse(assign.Invalid, "the body must be a JSON %s, not %s", want, kind.Value)
	case errors.As(err, &kind):
		return refuseField(kind.Field, "%s can't be %s", kind.Field, kind.Value)
	}
	text := strings.TrimPrefix(err.Error(), "json: ")
	r := assign.Refuse(assign.Invalid, "the body can't be read: %s", text)
	if name, ok := strings.CutPrefix(text, "unknown field "); ok {
		if field, err := strconv.Unquote(name); err == nil {
			r.Fields = []assign.Field{{Field: field, Detail: "there is no such field"}}
		}
	}
	return r
}

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
