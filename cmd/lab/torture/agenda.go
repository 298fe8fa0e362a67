package torture

import (
	"container/heap"
	"time"
)

// act is something to do at some time.
type act struct {
	at   time.Time
	do   func()
	poll bool // a poll of a request, which goes on after nobody clicks any more
}

// agenda is a list of acts, earliest first.
type agenda []act

func (a agenda) Len() int           { return len(a) }
func (a agenda) Less(i, j int) bool { return a[i].at.Before(a[j].at) }
func (a agenda) Swap(i, j int)      { a[i], a[j] = a[j], a[i] }
func (a *agenda) Push(x any)        { *a = append(*a, x.(act)) }
func (a *agenda) Pop() any {
	last := len(*a) - 1
	x := (*a)[last]
	*a = (*a)[:last]
	return x
}

// in adds an act after a time.
func (a *agenda) in(d time.Duration, do func()) { heap.Push(a, act{at: time.Now().Add(d), do: do}) }

// ask adds a poll after a time.
func (a *agenda) ask(d time.Duration, do func()) {
	heap.Push(a, act{at: time.Now().Add(d), do: do, poll: true})
}

// wait returns how long it is until the next act, or an hour if there is none.
func (a agenda) wait() time.Duration {
	if len(a) == 0 {
		return time.Hour
	}
	return time.Until(a[0].at)
}

// next removes the first act and returns it.
func (a *agenda) next() act { return heap.Pop(a).(act) }

// onlyPolls drops all acts except polls.
func (a *agenda) onlyPolls() {
	var left agenda
	for _, one := range *a {
		if one.poll {
			left = append(left, one)
		}
	}
	heap.Init(&left)
	*a = left
}
