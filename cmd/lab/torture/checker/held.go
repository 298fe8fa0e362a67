package checker

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"getwork/cmd/lab/torture/history"
)

// span is a time in which something was true, by one clock; it is half open.
type span[T any] struct {
	from, until time.Duration
	of          T
}

// overlaps calls found for pairs of spans that overlap: each span with the earlier one that lasted longest.
func overlaps[T any](spans []span[T], found func(a, b span[T])) {
	slices.SortStableFunc(spans, func(a, b span[T]) int { return cmp.Compare(a.from, b.from) })
	for i, last := 1, 0; i < len(spans); i++ {
		if spans[i].from < spans[last].until && spans[i].from < spans[i].until {
			found(spans[last], spans[i])
		}
		if spans[i].until > spans[last].until {
			last = i
		}
	}
}

// most returns the greatest number of spans that overlap at one moment, and those spans.
func most[T any](spans []span[T]) (at []T) {
	slices.SortStableFunc(spans, func(a, b span[T]) int { return cmp.Compare(a.from, b.from) })
	var open []span[T]
	for _, s := range spans {
		if s.from >= s.until {
			continue
		}
		open = slices.DeleteFunc(open, func(o span[T]) bool { return o.until <= s.from })
		open = append(open, s)
		if len(open) > len(at) {
			at = at[:0]
			for _, o := range open {
				at = append(at, o.of)
			}
		}
	}
	return at
}

// forever is later than everything else.
const forever = time.Duration(1<<63 - 1)

// rows returns the holdings of some works as the tables have them.
func (t *trial) rows(works []*work) []span[*work] {
	spans := make([]span[*work], 0, len(works))
	for _, w := range works {
		_, from := t.stamped(w.row.AssignedAt)
		until := t.closed(w.row)
		spans = append(spans, span[*work]{from: from, until: until, of: w})
	}
	return spans
}

// lasted returns when something was certainly true that, by the tables, began and ended at these times or goes on. It
// uses the database's clock or, if that was set meanwhile, the harness's. from >= until means never.
func (t *trial) lasted(began time.Time, ended *time.Time) (from, until time.Duration) {
	_, from = t.stamped(began)
	until = forever
	if ended != nil {
		until, _ = t.stamped(*ended)
	}
	return from, until
}

// closed returns a moment before which a holding was not over. By the tables, work that outlives its lease ends with the lease: the
// clock may have leapt over that time, and shown it long after.
func (t *trial) closed(row *history.WorkRow) time.Duration {
	if row.ClosedAt == nil {
		return forever
	}
	until, _ := t.stamped(*row.ClosedAt)
	if row.LeaseExpiresAt == nil || !row.LeaseExpiresAt.Equal(*row.ClosedAt) || !t.clock.jumped() {
		return until
	}
	assigned, _ := t.stamped(row.AssignedAt)
	if at, known := t.clock.reaches(*row.LeaseExpiresAt, assigned); known {
		return min(until, at)
	}
	return -forever
}

// stamped returns bounds for when a time of the tables was written, by the same clock as lasted. Comparisons of the
// bounds are certain.
func (t *trial) stamped(at time.Time) (from, to time.Duration) {
	if !t.clock.jumped() {
		since := at.Sub(t.tables.Now)
		return since, since
	}
	from, known := t.clock.after(at)
	to, _ = t.clock.by(at)
	if !known {
		return -forever, forever
	}
	return from, to
}

// before reports whether one time of the tables was certainly written before the other.
func (t *trial) before(a, b time.Time) bool {
	_, one := t.stamped(a)
	other, _ := t.stamped(b)
	return one < other
}

// describe describes a holding.
func (w *work) describe() string {
	if w.row == nil {
		return fmt.Sprintf("work %d, which has no row", w.id)
	}
	r := w.row
	closed := "is held still"
	if r.ClosedAt != nil {
		closed = fmt.Sprintf("%s at %s", r.State, r.ClosedAt.Format(time.StampMicro))
	}
	return fmt.Sprintf("work %d of %s%s (item %q, place %d, assigned at %s, %s)", w.id, r.User, instance(r.Instance), r.Item, r.Slot,
		r.AssignedAt.Format(time.StampMicro), closed)
}

func instance(name string) string {
	if name == "" {
		return ""
	}
	return "/" + name
}

// judgeHeldRows finds holdings that overlap by the tables and must not.
func (t *trial) judgeHeldRows() {
	groups := map[itemKey][]*work{}
	for _, it := range t.items {
		places, holders := map[int][]*work{}, map[string][]*work{}
		for _, w := range it.works {
			t.judged("holdings")
			places[w.row.Slot] = append(places[w.row.Slot], w)
			who := w.row.User + "/" + w.row.Instance
			holders[who] = append(holders[who], w)
			if w.row.Exclusive != nil {
				k := itemKey{it.key.task, *w.row.Exclusive}
				groups[k] = append(groups[k], w)
			}
			if it.places > 0 && w.row.Slot > it.places {
				t.broken(HeldOnce, nil, "an item of %d places was given a further one: %s", it.places, w.describe())
			}
		}
		for _, works := range places {
			t.judgeOverlaps(works, "one place was held twice at a time")
		}
		for _, works := range holders {
			t.judgeOverlaps(works, "a holder held an item twice at a time")
		}
		if at := most(t.rows(it.works)); it.places > 0 && len(at) > it.places {
			t.broken(HeldInTurn, nil, "%d held an item of %d places at a time: %s …",
				len(at), it.places, at[len(at)-1].describe())
		}
	}
	for _, works := range groups {
		t.judgeOverlaps(works, "two of an exclusive group were held at a time")
	}
}

func (t *trial) judgeOverlaps(works []*work, what string) {
	if len(works) < 2 {
		return
	}
	t.judgeSuccession(works, what)
	overlaps(t.rows(works), func(a, b span[*work]) {
		t.broken(HeldInTurn, nil, what+": %s, and %s", a.of.describe(), b.of.describe())
	})
}

// judgeSuccession needs no clock: ids are given in the order of the tasks' rounds, so a holding that goes on must be
// the item's last.
func (t *trial) judgeSuccession(works []*work, what string) {
	if !t.clock.jumped() {
		return // the times say more
	}
	works = slices.Clone(works)
	slices.SortFunc(works, func(a, b *work) int { return cmp.Compare(a.id, b.id) })
	for i, w := range works[:len(works)-1] {
		if w.row.ClosedAt == nil {
			t.broken(HeldOnce, nil, what+": %s, and %s", w.describe(), works[i+1].describe())
		}
	}
}
