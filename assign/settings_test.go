package assign

import (
	"reflect"
	"strings"
	"testing"
)

// Each setting has the help of a flag, which says what a new task has.
func TestSettingsOfFlags(t *testing.T) {
	t.Parallel()
	for i, of := range AllSettings {
		tag := reflect.TypeFor[Settings]().Field(i).Tag
		help, shown := tag.Get("help"), tag.Get("placeholder")
		if help == "" || !strings.Contains(help, of.New) || of.New != "" && shown != of.New {
			t.Errorf("%s is %q in a new task; its flag has the placeholder %q and the help %q", of.Name, of.New, shown, help)
		}
		if null := tag.Get("type") == "setting"; null != of.MayBeNull() {
			t.Errorf("%s may be null: %t; its flag may be none: %t", of.Name, of.MayBeNull(), null)
		}
	}
}

// A clone shares nothing with its original.
func TestCloneOfSettings(t *testing.T) {
	t.Parallel()
	var s Settings
	for _, of := range AllSettings {
		switch v := of.In(&s); v.Kind() {
		case reflect.Pointer:
			v.Set(reflect.New(v.Type().Elem()))
		case reflect.Slice:
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		}
	}
	c := s.Clone()
	if !reflect.DeepEqual(s, c) {
		t.Errorf("%+v is a clone of %+v", c, s)
	}
	for _, of := range AllSettings {
		if v := of.In(&s); (v.Kind() == reflect.Pointer || v.Kind() == reflect.Slice) && v.Pointer() == of.In(&c).Pointer() {
			t.Errorf("%s is shared", of.Name)
		}
	}
}
