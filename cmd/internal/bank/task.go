package bank

import _ "embed"

// Task is one kind of work at the loan desk.
type Task struct {
	// Name is the task's slug.
	Name string
	// Title and Description are for people.
	Title, Description string
	// Query is one SELECT over the schema "bank", best first. The column item is the loan's number; the other columns
	// are for the person who works on it.
	Query string
}

//go:embed tasks/verify-bank-account.sql
var verifyBankAccount string

//go:embed tasks/verify-bank-account-heavier.sql
var verifyBankAccountHeavier string

//go:embed tasks/check-income.sql
var checkIncome string

//go:embed tasks/review-arrears.sql
var reviewArrears string

// Tasks returns the desk's tasks, the main one first. With heavier its query takes more than 30 seconds instead of a
// few: it gives the same loans in the same order with the same columns, but recomputes every balance of every account
// from all lines before it instead of in one pass, as queries do that have grown.
func Tasks(heavier bool) []Task {
	verify := verifyBankAccount
	if heavier {
		verify = verifyBankAccountHeavier
	}
	return []Task{
		{
			Name:        "verify-bank-account",
			Title:       "Verify user submitted bank account",
			Description: "Open applications whose bank statements were submitted but not verified, the oldest submission first. Compare what the borrower typed with the balances recomputed from the account's lines.",
			Query:       verify,
		},
		{
			Name:        "check-income",
			Title:       "Check declared income",
			Description: "Open applications whose declared income nobody has checked, the most overstated first, measured against the pay that reached the account in the last twelve months.",
			Query:       checkIncome,
		},
		{
			Name:        "review-arrears",
			Title:       "Review loans in arrears",
			Description: "Granted loans that have paid less than their schedule asks for, the longest overdue first. See what the household has left, and agree on how to go on.",
			Query:       reviewArrears,
		},
	}
}
