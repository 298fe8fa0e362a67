package bank

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"
)

// line is one booking. Its balance is set once the month is in order.
type line struct {
	on              time.Time
	kind            string
	amount, balance int64
	who             string
}

// ledger makes an account's lines, month after month. Spending follows the balance, so that balances stay near those of
// real households.
type ledger struct {
	g       *rand.Rand
	account *account
	loan    *loan  // nil: none
	name    string // the name on the loan's payments
	balance int64
	lines   []line

	start                  time.Time // of the month being made
	rent, power, phone     int64
	landlord, plant, telco string
	insurer                string
	payday, rentday        int
	cards                  int // usual card payments a month
}

func newLedger(w *world, i int) *ledger {
	g := draw(drawLines, i)
	a := &w.accounts[i]
	l := &ledger{
		g: g, account: a,
		rent:     a.net * int64(between(g, 22, 34)) / 100 / 10_00 * 10_00,
		power:    int64(between(g, 48, 165)) * 1_00,
		phone:    int64(between(g, 19, 69))*1_00 + 99,
		landlord: pick(g, landlords),
		plant:    pick(g, utilities),
		telco:    pick(g, telcos),
		payday:   pick(g, []int{1, 15, 25, 26, 27, 28, 28}),
		rentday:  between(g, 1, 5),
		cards:    between(g, 3, 8),
	}
	if chance(g, 60) {
		l.insurer = pick(g, insurers)
	}
	if a.loan >= 0 {
		l.loan = &w.loans[a.loan]
		l.name = "Loan " + strconv.Itoa(a.loan+1)
	}
	return l
}

// month returns the lines of the month that starts on the given day, in the order of booking. The next call reuses the
// slice.
func (l *ledger) month(start time.Time) []line {
	l.start, l.lines = start, l.lines[:0]
	if start.Equal(l.account.first) {
		l.add(1, "transfer", l.account.net*int64(between(l.g, 40, 220))/100, "Balance brought forward")
	}
	l.income()
	l.fixed()
	l.daily()
	l.repay()
	// The sort is stable, so that the lines of one day stay in the order in which they were made.
	slices.SortStableFunc(l.lines, func(a, b line) int { return cmp.Compare(a.on.Unix(), b.on.Unix()) })
	for i := range l.lines {
		l.balance += l.lines[i].amount
		l.lines[i].balance = l.balance
	}
	return l.lines
}

// add books on the given day of the month, or on the last day if the month is shorter.
func (l *ledger) add(day int, kind string, amount int64, who string) {
	on := l.start.AddDate(0, 0, day-1)
	if on.Month() != l.start.Month() {
		on = l.start.AddDate(0, 1, -1)
	}
	l.lines = append(l.lines, line{on: on, kind: kind, amount: amount, who: who})
}

func (l *ledger) income() {
	a := l.account
	if ago := monthsApart(l.start, businessDay); a.idle > 0 && ago <= a.idle && ago > a.idle-a.idleFor {
		l.add(10, "benefit", a.net*55/100, "Employment Office")
		return
	}
	if a.pension {
		l.add(28, "pension", a.net, a.employer)
		return
	}
	pay := a.net
	if chance(l.g, 30) {
		pay += a.net * int64(between(l.g, -20, 45)) / 1000 // hours more or less
	}
	l.add(l.payday, "salary", pay, a.employer)
	if l.start.Month() == time.November && chance(l.g, 40) {
		l.add(l.payday, "salary", a.net*int64(between(l.g, 30, 90))/100, a.employer)
	}
}

func (l *ledger) fixed() {
	g := l.g
	l.add(l.rentday, "rent", -l.rent, l.landlord)
	l.add(between(g, 3, 8), "utilities", -l.power, l.plant)
	l.add(between(g, 10, 20), "utilities", -l.phone, l.telco)
	if l.insurer != "" {
		l.add(2, "direct_debit", -l.phone*3/2, l.insurer)
	}
	if spare := l.balance - l.account.net*5/2; spare > 0 {
		l.add(between(g, 4, 12), "transfer", -(spare/100_00+1)*100_00, "Savings account")
	} else if l.balance < -200_00 {
		l.add(between(g, 2, 6), "transfer", int64(between(g, 3, 9))*100_00-l.balance/100_00*100_00, "Savings account")
	}
}

func (l *ledger) daily() {
	g := l.g
	n := max(l.cards+between(g, -2, 2), 1)
	if l.balance < 0 {
		n = n/2 + 1
	}
	for range n {
		s := pick(g, shops)
		l.add(between(g, 1, 31), "card", -int64(between(g, s.low*100, s.high*100)), s.name)
	}
	if chance(g, 70) {
		l.add(between(g, 1, 28), "cash", -int64(between(g, 2, 15))*20_00, "Cash machine")
	}
	if chance(g, 35) {
		amount := int64(between(g, 4, 60)) * 5_00
		if chance(g, 60) {
			amount = -amount
		}
		l.add(between(g, 1, 28), "transfer", amount, pick(g, firstNames)+" "+pick(g, lastNames))
	}
}

// repay pays out the granted loan, hands it on to the payee of its purpose, and pays this month's instalment unless
// this borrower has stopped.
func (l *ledger) repay() {
	if l.loan == nil || !l.loan.granted() {
		return
	}
	n := monthsApart(l.loan.decided, l.start) - 1
	switch last := l.loan.dueSoFar() - l.loan.missed; {
	case n == -1:
		day := l.loan.decided.Day()
		l.add(day, "loan", l.loan.amount, l.name)
		l.add(day+between(l.g, 1, 9), "transfer", -l.loan.amount*int64(between(l.g, 85, 100))/100, l.loan.purpose.payee)
	case n < 0 || n >= last:
	case n == last-1 && l.loan.short:
		l.add(l.loan.dueDay, "loan_payment", -l.loan.instalment/2, l.name)
	default:
		l.add(l.loan.dueDay, "loan_payment", -l.loan.instalment, l.name)
	}
}
