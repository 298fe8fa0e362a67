package engine

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"getwork/assign"
)

// conclude says why the item is not handed out, until when, and in a sentence.
func (s *explainer) conclude() {
	s.Why, s.Until, s.Text = s.reason()
	s.Available = s.Why == assign.WhyAvailable
}

func (s *explainer) reason() (assign.Why, *time.Time, string) {
	never := slices.IndexFunc(s.blocking, func(b bound) bool { return b.State == "never" })
	switch {
	case !s.Matches:
		return assign.WhyNoMatch, nil, s.noMatch()
	case s.passedOver && s.Slots < 1:
		return assign.WhyPassedOver, nil, fmt.Sprintf("The query gives it with %d places; an item has at least one.", s.Slots)
	case s.passedOver:
		return assign.WhyPassedOver, nil, fmt.Sprintf("The query gives it with %d places and the exclusive group %q; an item has one or the other.", s.Slots, *s.Exclusive)
	case s.dropped:
		return assign.WhyRecheck, nil, s.noLonger()
	case s.taken >= s.Slots:
		until := s.placeFree()
		return assign.WhyHeld, until, s.heldBy() + s.comesBack(until)
	case never >= 0:
		b := s.blocking[never]
		if b.Exhausted {
			return assign.WhyNever, nil, fmt.Sprintf("Its attempts are used up; the last was %s's. A manager can redrive it.", b.User)
		}
		return assign.WhyNever, nil, fmt.Sprintf("It is never to be handed out again, %s said. A manager can redrive it.", b.by)
	case len(s.blocking) > 0:
		w := slices.MaxFunc(s.blocking, func(a, b bound) int { return a.AvailableAt.Compare(*b.AvailableAt) })
		how := "put it off"
		if w.State == "failed" {
			how = "failed with it"
		}
		return assign.WhyPutOff, w.AvailableAt, fmt.Sprintf("%s %s; it comes back at %s.", w.User, how, assign.TimeText(*w.AvailableAt))
	case s.busy && s.member != nil:
		return assign.WhyGroupHeld, s.member.LeaseExpiresAt, fmt.Sprintf("%s holds %q, which is of the same exclusive group %q%s",
			s.member.User, s.member.Item, *s.Exclusive, s.comesBack(s.member.LeaseExpiresAt))
	case s.due != nil:
		return assign.WhyNotDue, s.due, fmt.Sprintf("It is not to be handed out before %s.", assign.TimeText(*s.due))
	case s.paused:
		return assign.WhyPaused, nil, "The task is paused; nothing of it is handed out until a manager resumes it."
	case s.gone, s.freshUntil != nil && !s.onShelf:
		return assign.WhyNextRun, s.freshUntil, "It is not on the shelf that is handed out now, or was let go of after the shelf's run; the next run finds it."
	}
	return assign.WhyAvailable, nil, s.free()
}

func (s *explainer) noMatch() string {
	text := "The task's query does not give it."
	if s.task.Inbox() {
		text = "It is not in the inbox: it was never pushed, or it is done."
	}
	if len(s.Held) > 0 {
		text += " " + s.heldBy() + "."
	}
	return text
}

func (s *explainer) noLonger() string {
	text := "It is on the shelf, but the task's recheck does not return it any more, so it is not handed out from there."
	if len(s.Held) > 0 {
		text += " " + s.heldBy() + "."
	}
	return text
}

// heldBy returns a sentence without its end.
func (s *explainer) heldBy() string {
	names := make([]string, 0, len(s.Held))
	for _, w := range s.Held {
		names = append(names, w.User)
	}
	if len(names) > 3 {
		names = append(names[:3], fmt.Sprintf("and %d more", len(s.Held)-3))
	}
	who := strings.Join(names, ", ")
	if s.Slots > 1 {
		return fmt.Sprintf("%d of its %d places are taken: %s", len(s.Held), s.Slots, who)
	}
	if len(names) > 1 {
		return who + " hold it"
	}
	return who + " holds it"
}

// placeFree returns when leases that end will have left a place free; nil: they never do.
func (s *explainer) placeFree() *time.Time {
	var ends []time.Time
	for _, w := range s.Held {
		if w.LeaseExpiresAt != nil {
			ends = append(ends, *w.LeaseExpiresAt)
		}
	}
	slices.SortFunc(ends, time.Time.Compare)
	if over := len(s.Held) - s.Slots; over >= 0 && over < len(ends) {
		return &ends[over]
	}
	return nil
}

func (s *explainer) comesBack(until *time.Time) string {
	if until == nil {
		return "; it comes back when that is let go of."
	}
	return fmt.Sprintf("; it comes back at %s, unless the lease is extended.", assign.TimeText(*until))
}

func (s *explainer) free() string {
	text := "It can be handed out."
	if s.Slots > 1 {
		text = fmt.Sprintf("%d of its %d places are free.", s.Slots-s.taken, s.Slots)
	}
	if len(s.Barred) > 0 {
		text += " Those listed as barred can't have it."
	}
	return text
}
