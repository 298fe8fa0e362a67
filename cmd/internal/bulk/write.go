package bulk

import (
	"encoding/csv"
	"encoding/json"
	"io"
	"strconv"
	"time"

	"getwork/assign"
	"getwork/web/sheet"
)

// Writer writes work, one row after the other.
type Writer struct {
	w   io.Writer
	csv *csv.Writer // nil: NDJSON
}

// heads are the columns of CSV.
var heads = []string{"id", "task", "item", "slot", "user", "instance", "state", "attempt", "assigned_at", "lease_expires_at", "closed_at", "available_at", "error", "note", "details", "deadline", "code", "result"}

// NewWriter returns a writer. A table of CSV begins with the names of its columns, unless it continues another.
func NewWriter(w io.Writer, f Format, continued bool) (*Writer, error) {
	out := &Writer{w: w}
	if f == NDJSON {
		return out, nil
	}
	out.csv = csv.NewWriter(w)
	if continued {
		return out, nil
	}
	return out, out.csv.Write(heads)
}

// Write writes rows as the API sent them. NDJSON has each of them unchanged.
func (w *Writer) Write(rows []json.RawMessage) error {
	for _, raw := range rows {
		if w.csv == nil {
			if _, err := w.w.Write(append(append([]byte{}, raw...), '\n')); err != nil {
				return err
			}
			continue
		}
		var work assign.Work
		if err := json.Unmarshal(raw, &work); err != nil {
			return err
		}
		if err := w.csv.Write(cells(work)); err != nil {
			return err
		}
	}
	if w.csv == nil {
		return nil
	}
	w.csv.Flush()
	return w.csv.Error()
}

func cells(w assign.Work) []string {
	details := string(w.Details)
	if w.DetailsLeftOut {
		details = ""
	}
	row := []string{strconv.FormatInt(w.ID, 10), w.Task, w.Item, strconv.Itoa(w.Slot), w.User, w.Instance, string(w.State), strconv.Itoa(w.Attempt),
		moment(&w.AssignedAt), moment(w.LeaseExpiresAt), moment(w.ClosedAt), moment(w.AvailableAt), text(w.Error), text(w.Note), details, moment(w.Deadline), text(w.Code), string(w.Result)}
	for i := range row {
		row[i] = sheet.Text(row[i])
	}
	return row
}

func moment(t *time.Time) string {
	if t == nil {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

func text(t *string) string {
	if t == nil {
		return ""
	}
	return *t
}
