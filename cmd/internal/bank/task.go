package bank

import (
	_ "embed"

	"getwork/assign"
)

// Task is one kind of work at the loan desk.
type Task struct {
	// Name is the task's slug.
	Name string
	// Title and Description are for people.
	Title, Description string
	// Query is one SELECT over the schema "bank", best first. The column item is the loan's number; the other columns
	// are for the person who works on it.
	Query string
	// Display says how a loan is shown.
	Display assign.Display
}

// shown returns how loans are shown: what decides a case first, and all else on demand. Amounts are in euro.
func shown(fields ...assign.DisplayField) assign.Display {
	for i := range fields {
		if fields[i].Format == "money" {
			fields[i].Currency = "EUR"
		}
	}
	return assign.Display{Title: "{borrower}, loan {item}", One: "loan", Many: "loans", Fields: fields}
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
			Display: shown(
				assign.DisplayField{Column: "wrong", Label: "Statements that are wrong", StandsOut: "wrong > 0"},
				assign.DisplayField{Column: "worst_gap", Label: "Largest difference", Format: "money", StandsOut: "worst_gap > 100"},
				assign.DisplayField{Column: "submitted_opening", Label: "Opening balance, submitted", Format: "money"},
				assign.DisplayField{Column: "computed_opening", Label: "Opening balance, by our books", Format: "money"},
				assign.DisplayField{Column: "iban", Label: "IBAN", Format: "iban"},
				assign.DisplayField{Column: "submitted_at", Label: "Submitted", Format: "date"},
				assign.DisplayField{Column: "amount", Label: "Loan", Format: "money"},
			),
		},
		{
			Name:        "check-income",
			Title:       "Check declared income",
			Description: "Open applications whose declared income nobody has checked, the most overstated first, measured against the pay that reached the account in the last twelve months.",
			Query:       checkIncome,
			Display: shown(
				assign.DisplayField{Column: "overstated_percent", Label: "Overstated by", Format: "percentage", StandsOut: "overstated_percent > 20"},
				assign.DisplayField{Column: "declared", Label: "Income, declared", Format: "money"},
				assign.DisplayField{Column: "usual_pay", Label: "Income, usually paid", Format: "money"},
				assign.DisplayField{Column: "employer"},
				assign.DisplayField{Column: "months_with_pay", Label: "Months with pay"},
				assign.DisplayField{Column: "amount", Label: "Loan", Format: "money"},
			),
		},
		{
			Name:        "review-arrears",
			Title:       "Review loans in arrears",
			Description: "Granted loans that have paid less than their schedule asks for, the longest overdue first. See what the household has left, and agree on how to go on.",
			Query:       reviewArrears,
			Display: shown(
				assign.DisplayField{Column: "days_overdue", Label: "Days overdue", StandsOut: "days_overdue > 90"},
				assign.DisplayField{Column: "overdue", Format: "money"},
				assign.DisplayField{Column: "instalments", Label: "Instalments behind"},
				assign.DisplayField{Column: "usually_left", Label: "Usually left in a month", Format: "money"},
				assign.DisplayField{Column: "last_payment", Format: "date"},
				assign.DisplayField{Column: "amount", Label: "Loan", Format: "money"},
			),
		},
	}
}
