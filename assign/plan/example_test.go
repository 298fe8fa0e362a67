package plan_test

import (
	"fmt"

	"getwork/assign/plan"
)

// Three people wait, and the query found four loans: first come, first served, each with the best loans left.
func ExampleAssign() {
	waiting := []plan.Request{
		{ID: 101, Holder: plan.Holder{User: "Oliver"}, Wanted: 2, Room: plan.NoLimit}, // clicked first
		{ID: 102, Holder: plan.Holder{User: "Tracy"}, Wanted: 3, Room: plan.NoLimit},  // while the query ran
		{ID: 103, Holder: plan.Holder{User: "Ann"}, Wanted: 1, Room: plan.NoLimit},
	}
	loans := []string{"loan 123", "loan 77", "loan 4711", "loan 9"}
	items := make([]plan.Item, len(loans))
	for i := range items {
		items[i].Slots = 1
	}

	p := plan.Assign(waiting, plan.Supply{Source: plan.Result, Items: items, Usable: true})
	for i, a := range p.Answers {
		fmt.Print(waiting[i].Holder.User, ":")
		for _, g := range a.Grants {
			fmt.Printf(" [%s]", loans[g.Item])
		}
		fmt.Println()
	}
	// Output:
	// Oliver: [loan 123] [loan 77]
	// Tracy: [loan 4711] [loan 9]
	// Ann:
}

// A job has three places, and the second is taken; a volunteer may have one job.
func ExampleAssign_places() {
	waiting := []plan.Request{
		{ID: 1, Holder: plan.Holder{User: "Ann"}, Wanted: 1, Room: 1, Why: plan.AtLimit},
		{ID: 2, Holder: plan.Holder{User: "Bob"}, Wanted: 1, Room: 0, Why: plan.AtLimit}, // has a job already
		{ID: 3, Holder: plan.Holder{User: "Cid"}, Wanted: 1, Room: 1, Why: plan.AtLimit},
		{ID: 4, Holder: plan.Holder{User: "Dan"}, Wanted: 1, Room: 1, Why: plan.AtLimit},
	}
	job := plan.Item{Slots: 3, Taken: []int{2}, Holders: []plan.Holder{{User: "Eve"}}}

	p := plan.Assign(waiting, plan.Supply{Source: plan.Result, Items: []plan.Item{job}, Usable: true})
	for i, a := range p.Answers {
		switch {
		case a.Outcome == plan.Assigned:
			fmt.Println(waiting[i].Holder.User, "has place", a.Grants[0].Slot)
		case a.Reason == plan.AtLimit:
			fmt.Println(waiting[i].Holder.User, "has a job already")
		case a.Reason == plan.AllHeld:
			fmt.Println(waiting[i].Holder.User, "is too late")
		}
	}
	// Output:
	// Ann has place 1
	// Bob has a job already
	// Cid has place 3
	// Dan is too late
}

// A shelf is the rest of an earlier run. This one is cut: there may be more items, which only another run would find. A
// request that wants more than is left waits for that run, and later requests do not overtake it.
func ExampleAssign_shelf() {
	waiting := []plan.Request{
		{ID: 1, Holder: plan.Holder{User: "Ann"}, Wanted: 1, Room: plan.NoLimit},
		{ID: 2, Holder: plan.Holder{User: "Bob"}, Wanted: 2, Room: plan.NoLimit},
		{ID: 3, Holder: plan.Holder{User: "Cid"}, Wanted: 1, Room: plan.NoLimit},
	}
	left := []plan.Item{{Slots: 1}, {Slots: 1}}

	p := plan.Assign(waiting, plan.Supply{Source: plan.Shelf, Items: left, Cut: true, Usable: true})
	for i, a := range p.Answers {
		fmt.Println(waiting[i].Holder.User, "waits for a run:", a.Outcome == plan.Wait)
	}
	fmt.Println("The shelf is spent:", p.Spent)
	// Output:
	// Ann waits for a run: false
	// Bob waits for a run: true
	// Cid waits for a run: true
	// The shelf is spent: true
}

// Four eyes, and a group of which one member is held at a time: a user who is barred from the best item gets the next.
func ExampleAssign_rules() {
	waiting := []plan.Request{
		{ID: 1, Holder: plan.Holder{User: "Ann"}, Wanted: 3, Room: plan.NoLimit},
		{ID: 2, Holder: plan.Holder{User: "Bob"}, Wanted: 3, Room: plan.NoLimit},
	}
	names := []string{"loan 1", "loan 2", "loan 3", "loan 4"}
	items := []plan.Item{
		{Slots: 1, Barred: []plan.Bar{{User: "Ann", Because: plan.FourEyes}}}, // she verified it in another task
		{Slots: 1, Exclusive: "account 7"},
		{Slots: 1, Exclusive: "account 7"},
		{Slots: 1},
	}

	p := plan.Assign(waiting, plan.Supply{Source: plan.Result, Items: items, Usable: true})
	for i, a := range p.Answers {
		fmt.Print(waiting[i].Holder.User, ":")
		for _, g := range a.Grants {
			fmt.Printf(" [%s]", names[g.Item])
		}
		fmt.Println()
	}
	// Output:
	// Ann: [loan 2] [loan 4]
	// Bob: [loan 1]
}
