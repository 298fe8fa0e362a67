package web

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"getwork/assign"
)

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
		return assign.Refuse(assign.Invalid, "the body is not UTF-8")
	}
	err := strictly(body, v)
	if err == nil {
		err = checkFields(body, v)
	}
	if err == nil && string(bytes.TrimSpace(body)) == "null" { // null would leave v as it is
		err = &json.UnmarshalTypeError{Value: "null"}
	}
	if err == nil && hasNUL(body) {
		err = errors.New("text has no NUL character (\\u0000)")
	}
	if err == nil && assign.LoneSurrogate(body) {
		err = errors.New("text has no half of a character (\\ud800 to \\udfff without the other half)")
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
