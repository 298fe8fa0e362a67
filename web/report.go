package web

import (
	"net/http"
	"net/url"
	"strings"
	"time"

	"getwork/assign"
)

// history answers with counts of the last hours, in steps.
func (s *server) history(w http.ResponseWriter, r *http.Request) error {
	v, err := parameters(r)
	if err != nil {
		return err
	}
	span, err := readSpan(v)
	if err != nil {
		return err
	}
	span.Zone = v.Get("zone")
	if !isText(span.Zone) {
		return refuseField("zone", "zone is UTF-8 text without NUL")
	}
	if step := v.Get("step"); step == "1d" {
		span.Days = true
	} else if step != "" {
		if span.Step, err = time.ParseDuration(step); err != nil || span.Step <= 0 {
			return refuseField("step", `a step is a duration such as "5m", or "1d", not %q`, step)
		}
	}
	found, err := s.Report.History(r.Context(), span)
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, found)
}

// returns answers with the users who return much, and the items that many return.
func (s *server) returns(w http.ResponseWriter, r *http.Request) error {
	v, err := parameters(r)
	if err != nil {
		return err
	}
	span, err := readSpan(v)
	if err != nil {
		return err
	}
	found, err := s.Report.Returns(r.Context(), span)
	if err != nil {
		return err
	}
	if s.HidePeople {
		found.People, found.Hidden = []assign.PersonReturns{}, true
	}
	return answer(w, http.StatusOK, found)
}

// readSpan reads ?task=a,b and ?from=.
func readSpan(v url.Values) (span assign.Span, err error) {
	span.Tasks = taskNames(v)
	if from := v.Get("from"); from != "" {
		since, err := time.Parse(time.RFC3339, from)
		if err != nil {
			return span, refuseField("from", "from is a time such as 2026-08-01T12:00:00Z, not %q; a plus sign in an address is written %%2B", from)
		}
		span.Since = &since
	}
	return span, nil
}

// taskNames reads ?task=a,b; nil means all tasks.
func taskNames(v url.Values) []string {
	if tasks := v.Get("task"); tasks != "" {
		return strings.Split(tasks, ",")
	}
	return nil
}
