package plan

import "slices"

// situationOf makes a small situation, crowded enough that rules meet. draw(n) chooses one of 0 … n-1.
func situationOf(draw func(n int) int) ([]Request, Supply) {
	seldom := func() bool { return draw(4) == 3 }
	users, groups := []string{"Ann", "Bob", "Cid", "Dan"}, []string{"desk", "night"}
	someone := func() Holder { return Holder{users[draw(len(users))], []string{"", "one"}[draw(2)]} }
	limit, only := NoLimit, []string(nil)
	if seldom() {
		limit = 1 + draw(4)
	}
	if seldom() {
		only = groups[:1+draw(2)]
	}

	requests := make([]Request, draw(7))
	open := map[string]int{}
	for _, user := range users {
		if limit < NoLimit {
			open[user] = draw(4)
		}
	}
	id := int64(0)
	for i := range requests {
		id += int64(1 + draw(3))
		h := someone()
		requests[i] = Request{ID: id, Holder: h, Wanted: 1 + draw(4), Room: NoLimit, Lingers: seldom(), Anything: seldom(), Elsewhere: seldom()}
		if draw(2) == 1 {
			requests[i].Groups = groups[draw(2):]
		}
		requests[i].Only(only)
		requests[i].Limit(limit-open[h.User], AtLimit)
	}

	supply := Supply{Source: Source(draw(3)), Cut: draw(2) == 1, Items: make([]Item, draw(9)), Usable: !seldom()}
	for i := range supply.Items {
		it := &supply.Items[i]
		it.Slots = 1
		if seldom() {
			it.Exclusive = []string{"g", "h"}[draw(2)]
		}
		if seldom() {
			it.Slots = 1 + draw(3)
		}
		for slot := 1; slot <= 4 && seldom(); slot += 1 + draw(2) { // perhaps more than Slots, perhaps with gaps
			if h := someone(); !slices.Contains(it.Holders, h) {
				it.Holders, it.Taken = append(it.Holders, h), append(it.Taken, slot)
			}
		}
		for seldom() {
			it.Barred = append(it.Barred, Bar{users[draw(len(users))], []Because{FourEyes, LetGo}[i%2]})
		}
	}
	markBusy(supply.Items, map[string]bool{"g": seldom(), "h": seldom()})
	supply.Stale = supply.Source == Shelf && seldom()
	if supply.Source == Shelf {
		supply.Used = seldom()
	}
	if seldom() { // drawn last, so that each recorded situation stays as it is
		away := users[draw(len(users))]
		for i := range requests {
			if requests[i].Holder.User == away {
				requests[i].Limit(0, Away)
			}
		}
	}
	if seldom() {
		for i := range supply.Items {
			supply.Items[i].Once = draw(2) == 1
		}
	}
	if seldom() { // likewise
		for i := range supply.Items {
			if seldom() {
				supply.Items[i].Needs = [][]string{{"french"}, {"night"}, {"desk", "french"}}[draw(3)]
			}
		}
		for i := range requests {
			if draw(2) == 1 {
				requests[i].Skills = []string{"french"}
			}
		}
	}
	return requests, supply
}

// markBusy marks every item of whose group another member is held, here or elsewhere.
func markBusy(items []Item, elsewhere map[string]bool) {
	for i := range items {
		it := &items[i]
		it.Busy = elsewhere[it.Exclusive]
		for other := range items {
			if it.Exclusive != "" && other != i && items[other].Exclusive == it.Exclusive && len(items[other].Taken) > 0 {
				it.Busy = true
			}
		}
	}
}
