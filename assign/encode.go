package assign

import (
	"bytes"
	"encoding/json"
	"strconv"
	"time"
)

// A round may send ten thousand messages, and every click is answered with a request. Their parts are encoded by hand here,
// because encoding/json takes five times as long. A test compares both encodings field by field. Only details may differ:
// they stay as PostgreSQL keeps them, with their spaces.

// AppendJSON appends the request's JSON to b.
func (r *Request) AppendJSON(b []byte) []byte {
	b = appendID(b, `{"id":`, r.ID)
	b = appendText(b, `,"task":`, r.Task)
	b = appendText(b, `,"user":`, r.User)
	if r.Instance != "" {
		b = appendText(b, `,"instance":`, r.Instance)
	}
	b = appendNumber(b, `,"wanted":`, r.Wanted)
	b = appendNumber(b, `,"requested":`, r.Requested)
	b = appendNumber(b, `,"assigned":`, r.Assigned)
	b = appendText(b, `,"state":`, r.State)
	b = appendTextOrNull(b, `,"reason":`, r.Reason)
	b = appendTextOrNull(b, `,"error":`, r.Error)
	b = appendDurationOrNull(b, `,"lease":`, r.Lease)
	b = appendTime(b, `,"created_at":`, &r.CreatedAt)
	b = appendTime(b, `,"linger_until":`, r.LingerUntil)
	b = appendTime(b, `,"completed_at":`, r.CompletedAt)
	b = appendTime(b, `,"ranked_at":`, r.RankedAt)
	b = strconv.AppendBool(append(b, `,"stale":`...), r.Stale)
	b = append(b, `,"eta_seconds":`...)
	if r.EtaSeconds == nil {
		b = append(b, "null"...)
	} else {
		b = strconv.AppendFloat(b, *r.EtaSeconds, 'f', -1, 64)
	}
	b = append(b, `,"position":`...)
	if r.Position == nil {
		b = append(b, "null"...)
	} else {
		b = strconv.AppendInt(b, *r.Position, 10)
	}
	if r.Tasks != nil {
		b = appendList(append(b, `,"tasks":`...), r.Tasks, func(name *string, b []byte) []byte { return appendText(b, "", *name) })
	}
	if r.Asking != nil {
		b = appendText(b, `,"asking":`, *r.Asking)
	}
	b = append(b, `,"work":`...)
	return append(appendList(b, r.Work, (*Work).AppendJSON), '}')
}

// AppendJSON appends the work's JSON to b.
func (w *Work) AppendJSON(b []byte) []byte {
	b = appendID(b, `{"id":`, w.ID)
	b = appendText(b, `,"task":`, w.Task)
	b = appendText(b, `,"item":`, w.Item)
	b = appendText(b, `,"user":`, w.User)
	if w.Instance != "" {
		b = appendText(b, `,"instance":`, w.Instance)
	}
	b = appendNumber(b, `,"slot":`, w.Slot)
	b = append(b, `,"details":`...)
	b = appendRaw(b, w.Details)
	b = appendTime(b, `,"assigned_at":`, &w.AssignedAt)
	b = appendTime(b, `,"lease_expires_at":`, w.LeaseExpiresAt)
	b = appendNumber(b, `,"attempt":`, w.Attempt)
	b = appendText(b, `,"state":`, w.State)
	b = appendTime(b, `,"closed_at":`, w.ClosedAt)
	b = appendTime(b, `,"available_at":`, w.AvailableAt)
	b = appendTextOrNull(b, `,"note":`, w.Note)
	if w.Code != nil {
		b = appendText(b, `,"code":`, *w.Code)
	}
	if w.Result != nil {
		b = appendRaw(append(b, `,"result":`...), w.Result)
	}
	if w.LaterUntil != nil {
		b = appendTime(b, `,"later_until":`, w.LaterUntil)
	}
	if w.Deadline != nil {
		b = appendTime(b, `,"deadline":`, w.Deadline)
	}
	if w.Lease != nil {
		b = appendDurationOrNull(b, `,"lease":`, w.Lease)
	}
	if w.ClosedBy != nil {
		b = appendText(b, `,"closed_by":`, *w.ClosedBy)
	}
	if w.Error != nil {
		b = appendText(b, `,"error":`, *w.Error)
	}
	if w.ToOthers {
		b = append(b, `,"to_others":true`...)
	}
	if w.Exhausted {
		b = append(b, `,"exhausted":true`...)
	}
	if w.Expiring {
		b = append(b, `,"expiring":true`...)
	}
	if w.From != 0 {
		b = append(b, `,"from":"`...)
		b = append(strconv.AppendInt(b, w.From, 10), '"')
	}
	if w.Again {
		b = append(b, `,"again":true`...)
	}
	if w.Earlier != nil {
		earlier, _ := json.Marshal(w.Earlier)
		b = append(append(b, `,"earlier":`...), earlier...)
	}
	if w.DetailsLeftOut {
		b = append(b, `,"details_left_out":true`...)
	}
	return append(b, '}')
}

// AppendJSON appends the pipeline's JSON to b.
func (p Pipeline) AppendJSON(b []byte) []byte {
	b = append(b, `{"work":`...)
	b = appendList(b, p.Work, (*Work).AppendJSON)
	b = append(b, `,"requests":`...)
	b = appendList(b, p.Requests, (*Request).AppendJSON)
	if len(p.Absences) > 0 { // they are few
		absences, _ := json.Marshal(p.Absences)
		b = append(append(b, `,"absences":`...), absences...)
	}
	return append(b, '}')
}

// AppendResults appends the answer to a call for much work to b.
func AppendResults(b []byte, results []Result) []byte {
	b = appendList(append(b, `{"results":`...), results, (*Result).appendJSON)
	return append(b, '}')
}

func (r *Result) appendJSON(b []byte) []byte {
	b = appendID(b, `{"id":`, r.ID)
	b = appendNumber(b, `,"status":`, r.Status)
	if r.Work != nil {
		b = r.Work.AppendJSON(append(b, `,"work":`...))
	}
	if r.Problem != nil {
		problem, _ := json.Marshal(r.Problem)
		b = append(append(b, `,"problem":`...), problem...)
	}
	return append(b, '}')
}

func appendList[T any](b []byte, list []T, one func(*T, []byte) []byte) []byte {
	if list == nil {
		return append(b, "null"...)
	}
	b = append(b, '[')
	for i := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = one(&list[i], b)
	}
	return append(b, ']')
}

func appendID(b []byte, name string, id int64) []byte {
	b = append(append(b, name...), '"')
	return append(strconv.AppendInt(b, id, 10), '"')
}

func appendNumber(b []byte, name string, n int) []byte {
	return strconv.AppendInt(append(b, name...), int64(n), 10)
}

// appendText appends plain ASCII as it is, and leaves other text to encoding/json, which is slower.
func appendText[T ~string](b []byte, name string, text T) []byte {
	b = append(b, name...)
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			quoted, _ := json.Marshal(string(text))
			return append(b, quoted...)
		}
	}
	b = append(append(b, '"'), text...)
	return append(b, '"')
}

func appendTextOrNull[T ~string](b []byte, name string, text *T) []byte {
	if text == nil {
		return append(append(b, name...), "null"...)
	}
	return appendText(b, name, *text)
}

func appendDurationOrNull(b []byte, name string, d *Duration) []byte {
	if d == nil {
		return append(append(b, name...), "null"...)
	}
	return appendText(b, name, d.String())
}

func appendTime(b []byte, name string, t *time.Time) []byte {
	b = append(b, name...)
	if t == nil {
		return append(b, "null"...)
	}
	b = append(b, '"')
	return append(t.AppendFormat(b, time.RFC3339Nano), '"')
}

// appendRaw appends JSON as PostgreSQL keeps it: valid, and with the sender's line breaks. It removes those, because they
// would end a line of an event stream.
func appendRaw(b []byte, raw json.RawMessage) []byte {
	if raw == nil {
		return append(b, "null"...)
	}
	if !bytes.ContainsAny(raw, "\r\n") {
		return append(b, raw...)
	}
	into := bytes.NewBuffer(b)
	_ = json.Compact(into, raw)
	return into.Bytes()
}
