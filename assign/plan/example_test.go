package plan_test

import (
	"fmt"

	"getwork/assign/plan"
)

// Three people wait, and the query found four loans: first come, first served, each with the best that are left.
func ExampleAssign() {
	waiting := []plan.Request{
		{ID: 101, Wanted: 2}, // Oliver clicked first
		{ID: 102, Wanted: 3}, // Tracy, while his query ran
		{ID: 103, Wanted: 1},
	}
	loans := []string{"loan 123", "loan 77", "loan 4711", "loan 9"}

	p := plan.Assign(waiting, plan.Supply{Source: plan.Run, Items: len(loans)})
	for _, a := range p.Answers {
		fmt.Println(a.Request, loans[a.From:a.From+a.Count])
	}
	// Output:
	// 101 [loan 123 loan 77]
	// 102 [loan 4711 loan 9]
	// 103 []
}
