package plan

import (
	"fmt"
	"testing"
)

// A round blocks all others of its task, so its cost must grow only with what it hands out: the figure per request stays
// the same with ten times the requests, with rules or without.
//
//	go test -run '^$' -bench . ./assign/plan
func BenchmarkAssign(b *testing.B) {
	for _, n := range []int{1_000, 10_000} {
		wants := func(requests []Request, wanted int) []Request {
			for i := range requests {
				requests[i].Wanted = wanted
			}
			return requests
		}
		benchmark(b, "plain", n, wants(crowd(n, n), 3), plain(3*n))
		benchmark(b, "rules", n, limited(wants(crowd(n, n/10), 3)), ruled(3*n))
		// Ten programs share a name that is barred from the best items: these stay in front of all others.
		kept := plain(3*n + 100)
		for i := range 100 {
			kept[i].Barred = []Bar{{"user 0", FourEyes}}
		}
		benchmark(b, "kept from the best", n, wants(crowd(n, 1), 3), kept)
		benchmark(b, "one item with many places", n, wants(crowd(n, n), 1), []Item{{Slots: n}})
	}
}

func benchmark(b *testing.B, name string, n int, requests []Request, items []Item) {
	b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			plan := Assign(requests, Supply{Source: Result, Items: items, Usable: true})
			if last := plan.Answers[n-1]; last.Outcome != Assigned {
				b.Fatalf("the last request %v%v", outcomes[last.Outcome], reasons[last.Reason])
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/request")
	})
}

// crowd returns n requests of so many users; if there are fewer users than requests, each has several programs.
func crowd(n, users int) []Request {
	requests := make([]Request, n)
	for i := range requests {
		requests[i] = Request{ID: int64(i + 1), Room: NoLimit,
			Holder: Holder{User: fmt.Sprintf("user %d", i%users), Instance: fmt.Sprint(i / users)}}
	}
	return requests
}

func limited(requests []Request) []Request {
	for i := range requests {
		requests[i].Limit(100, AtLimit)
	}
	return requests
}

func plain(n int) []Item {
	items := make([]Item, n)
	for i := range items {
		items[i].Slots = 1
	}
	return items
}

// ruled returns items with places, some of them held, with barred users, and with groups, some of them busy. As many
// places are free as there are items.
func ruled(n int) []Item {
	var items []Item
	for i := range n {
		it := Item{Slots: 1}
		switch i % 6 {
		case 0:
			it = Item{Slots: 3, Taken: []int{2}, Holders: []Holder{{User: "somebody"}}}
		case 1:
			it.Exclusive = fmt.Sprint("pair ", i/12)
		case 2:
			it.Exclusive, it.Busy = fmt.Sprint("busy ", i), true
		case 3:
			it.Barred = []Bar{{fmt.Sprintf("user %d", i%100), LetGo}, {"somebody", LetGo}, {"somebody else", FourEyes}}
		}
		items = append(items, it)
	}
	return append(items, plain(n/4)...)
}
