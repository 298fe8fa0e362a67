package plan

import (
	"fmt"
	"testing"
)

// Under the assign lock nobody else is served, so a round must cost as much as it hands out: the figure per request
// stays the same, ten times the requests or not, with rules or without.
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
		benchmark(b, "plain", n, Rules{}, wants(crowd(n, n), 3), plain(3*n))
		benchmark(b, "rules", n, Rules{MaxOpen: 100, Groups: []string{"desk", "night"}}, wants(crowd(n, n/10), 3), ruled(3*n))
		// Ten programs under one name, who is kept from the best items: these stay in front of all others.
		kept := plain(3*n + 100)
		for i := range 100 {
			kept[i].Barred = []string{"user 0"}
		}
		benchmark(b, "kept from the best", n, Rules{}, wants(crowd(n, 1), 3), kept)
		benchmark(b, "one item with many places", n, Rules{}, wants(crowd(n, n), 1), []Item{{Slots: n}})
	}
}

func benchmark(b *testing.B, name string, n int, rules Rules, requests []Request, items []Item) {
	b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			plan := Assign(rules, requests, Supply{Source: Result, Items: items, Usable: true})
			if last := plan.Answers[n-1]; last.Outcome != Assigned {
				b.Fatalf("the last request %v%v", outcomes[last.Outcome], reasons[last.Reason])
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/request")
	})
}

// crowd is n requests of so many users, each with several programs if there are fewer.
func crowd(n, users int) []Request {
	requests := make([]Request, n)
	for i := range requests {
		requests[i] = Request{ID: int64(i + 1), Groups: []string{"sales", "night"},
			Holder: Holder{User: fmt.Sprintf("user %d", i%users), Instance: fmt.Sprint(i / users)}}
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

// ruled items have places, of which some are held, users who may not have them, and groups, some of them busy; with as
// many places to give as there are items.
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
			it.Barred = []string{fmt.Sprintf("user %d", i%100), "somebody", "somebody else"}
		}
		items = append(items, it)
	}
	return append(items, plain(n/4)...)
}
