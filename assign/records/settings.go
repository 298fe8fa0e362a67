package records

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"getwork/assign"
)

// SettingsColumns are the columns of task_version v that make a task's settings; see [IntoSettings]. The name and whether it is
// paused are those of task_state.
var SettingsColumns = func() string {
	var columns []string
	for _, of := range assign.AllSettings {
		if inState(of) {
			continue
		}
		column := "v." + of.Name
		switch {
		case of.Name == "conflicts_with":
			column = `array(select o.name from getwork.task_state o where o.task_id = any(v.conflicts_with) order by o.name)`
		case of.Name == "on_complete": // it is stored by its task's id, as that may be renamed; nowhere once that was deleted
			column = `case when v.on_complete is not null then (
    select v.on_complete - 'task_id' || jsonb_build_object('task', o.name)
    from getwork.task_state o where o.task_id = (v.on_complete->>'task_id')::bigint and o.deleted_at is null) end`
		case of.Type.Kind() == reflect.Bool:
			column = `coalesce(` + column + `, false)`
		case of.IsDuration():
			column = `(extract(epoch from ` + column + `) * 1000000)::bigint`
			if of.New != "" {
				column = `coalesce(` + column + `, (extract(epoch from interval '` + of.New + `') * 1000000)::bigint)`
			}
		case of.Type == reflect.TypeFor[assign.Query]():
			column = `coalesce(` + column + `, '')`
		case isJSON(of):
			column = `coalesce(` + column + `, '[]')`
		case (of.Type.Kind() == reflect.String || of.Type.Kind() == reflect.Int) && of.New != "":
			column = `coalesce(` + column + `, '` + of.New + `')`
		}
		columns = append(columns, column)
	}
	return strings.Join(columns, ", ")
}()

// IntoSettings returns the targets for a scan of SettingsColumns.
func IntoSettings(s *assign.Settings) (into []any) {
	for _, of := range assign.AllSettings {
		if !inState(of) {
			into = append(into, of.In(s).Addr().Interface())
		}
	}
	return into
}

// isJSON reports whether the setting is a list that its column has as JSON; null: it is empty.
func isJSON(of assign.Setting) bool {
	return of.Type.Kind() == reflect.Slice && of.Type.Elem().Kind() == reflect.Struct
}

func inState(of assign.Setting) bool { return of.Name == "name" || of.Name == "paused" }

// InsertVersion writes a version of a task: its arguments are task, version, and who wrote it, before those of [FromSettings].
var InsertVersion = func() string {
	columns, values := "task_id, version, created_by", "$1, $2, $3"
	for i, of := range assign.AllSettings {
		value := fmt.Sprintf("$%d", 4+i)
		switch {
		case of.IsDuration():
			value += `::bigint * interval '1 microsecond'`
		case of.Name == "on_complete":
			value += `::jsonb - 'task'`
		case of.Type == reflect.TypeFor[assign.Query]():
			value = `nullif(` + value + `, '')`
		}
		columns, values = columns+", "+of.Name, values+", "+value
	}
	return `insert into getwork.task_version (` + columns + `) values (` + values + `)`
}()

// FromSettings returns the arguments of InsertVersion for the settings; conflicts are the ids of the tasks that they name, and onward that
// of the task that their on_complete names.
func FromSettings(s *assign.Settings, conflicts []int64, onward int64) (values []any, err error) {
	for _, of := range assign.AllSettings {
		value := of.In(s).Interface()
		switch v := value.(type) {
		case assign.Query:
			value = string(v)
		case *assign.Display: // as text, because a nil pointer would become JSON's null
			var display *string
			if v != nil {
				b, err := json.Marshal(v)
				if err != nil {
					return nil, fmt.Errorf("encode how items are shown: %w", err)
				}
				display = new(string(b))
			}
			value = display
		}
		if isJSON(of) {
			var list *string
			if of.In(s).Len() > 0 {
				b, err := json.Marshal(value)
				if err != nil {
					return nil, fmt.Errorf("encode %s: %w", of.Name, err)
				}
				list = new(string(b))
			}
			value = list
		}
		switch of.Name {
		case "conflicts_with":
			value = conflicts
		case "on_complete":
			if s.OnComplete == nil {
				value = nil
				break
			}
			b, err := json.Marshal(struct {
				Task int64 `json:"task_id"`
				assign.OnComplete
			}{onward, *s.OnComplete})
			if err != nil {
				return nil, fmt.Errorf("encode where completions go on to: %w", err)
			}
			value = string(b)
		}
		values = append(values, value)
	}
	return values, nil
}
