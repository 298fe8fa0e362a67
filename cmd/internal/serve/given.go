package serve

import (
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"time"
)

var capital = regexp.MustCompile(`([a-z0-9])([A-Z])`)

// given returns the flags of a struct of settings whose values differ from their defaults. A flag that nothing uses is refused,
// or somebody would rely on it.
func given(settings any) (flags []string) {
	v := reflect.ValueOf(settings)
	for i := range v.NumField() {
		f, value := v.Type().Field(i), v.Field(i)
		if !f.IsExported() || value.IsZero() {
			continue
		}
		text := fmt.Sprint(value.Interface())
		if list, ok := value.Interface().([]string); ok {
			text = strings.Join(list, ",")
		}
		absent := f.Tag.Get("default")
		if d, err := time.ParseDuration(absent); err == nil {
			absent = d.String()
		}
		if text == absent {
			continue
		}
		name := f.Tag.Get("name")
		if name == "" {
			name = strings.ToLower(capital.ReplaceAllString(f.Name, "$1-$2"))
		}
		flags = append(flags, "--"+name)
	}
	return flags
}
