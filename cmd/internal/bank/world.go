package bank

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// businessDay is the bank's today. It is fixed, so that the bank is the same in every year, and the end of a month, so
// that every month is whole.
var businessDay = time.Date(2026, time.October, 31, 0, 0, 0, 0, time.UTC)

// seed selects this bank among all possible ones.
const seed = 20261031

// Each thing has a generator of its own, seeded by its kind and number. So one account's random numbers do not depend
// on another's.
const (
	drawLoans = iota + 1
	drawPeople
	drawLines
	drawStatements
	drawDeclaration
)

func draw(what, number int) *rand.Rand {
	return rand.New(rand.NewPCG(seed, uint64(what)<<32|uint64(number)))
}

// pick returns a random element of list.
func pick[T any](g *rand.Rand, list []T) T { return list[g.IntN(len(list))] }

// between returns a random number from low to high, both included.
func between(g *rand.Rand, low, high int) int { return low + g.IntN(high-low+1) }

// chance returns true in percent of a hundred cases.
func chance(g *rand.Rand, percent int) bool { return g.IntN(100) < percent }

type person struct {
	first, last, street, city string
	born                      time.Time
}

type account struct {
	person   int // index into people
	opened   time.Time
	first    time.Time // the month in which its lines begin
	net      int64     // monthly income, in cents
	employer string
	pension  bool
	idle     int     // how many months before businessDay the pay stopped; 0: never
	idleFor  int     // for how many months it stopped
	loan     int     // index into loans, or -1
	closings []int64 // balance at the end of each month, once its lines are made
}

// world is the bank before its lines are booked. It fits into memory, and the lines depend on nothing else.
type world struct {
	people   []person
	accounts []account
	loans    []loan
	lines    int // transactions written so far
	papers   int // statements written so far
}

// newWorld makes the people and accounts. Two of three accounts carry a loan; one person in eight has a second account.
func newWorld(loans int) *world {
	accounts := loans + loans/2
	w := &world{
		people:   make([]person, accounts-accounts/9),
		accounts: make([]account, accounts),
	}
	for i := range w.people {
		w.people[i] = newPerson(draw(drawPeople, i))
	}
	g := draw(drawLoans, 0)
	w.loans = newLoans(g, loans)
	for i, at := range g.Perm(accounts) {
		w.accounts[at].loan = -1
		if i < loans {
			w.accounts[at].loan = i
			w.loans[i].account = at
		}
	}
	for i := range w.accounts {
		w.openAccount(i, g)
	}
	return w
}

func newPerson(g *rand.Rand) person {
	return person{
		first:  pick(g, firstNames),
		last:   pick(g, lastNames),
		street: fmt.Sprintf("%s %d", pick(g, streets), between(g, 1, 140)),
		city:   pick(g, cities),
		born:   businessDay.AddDate(-22, 0, -g.IntN(50*365)),
	}
}

// openAccount gives the account its owner, its pay, and its first month, which is early enough for the statements that
// its loan needs.
func (w *world) openAccount(i int, g *rand.Rand) {
	a := &w.accounts[i]
	a.person = i
	if i >= len(w.people) {
		a.person = g.IntN(len(w.people))
	}
	back := between(g, 8, 24)
	from := businessDay
	if a.loan >= 0 {
		l := &w.loans[a.loan]
		from, back = l.submitted, between(g, statementMonths+1, 13)
		if l.granted() {
			l.dueDay = between(g, 1, 28)
		}
	}
	a.first = monthOf(from).AddDate(0, -back, 0)
	a.opened = a.first.AddDate(0, 0, -g.IntN(3650))
	a.net = int64(between(g, 1450, 3400)) * 100
	if chance(g, 20) {
		a.net += int64(between(g, 400, 3500)) * 100
	}
	a.employer = pick(g, employers)
	if a.pension = w.people[a.person].born.Before(businessDay.AddDate(-66, 0, 0)); a.pension {
		a.employer = pensionFund
	} else if chance(g, 6) {
		a.idle = between(g, 2, 14)
		a.idleFor = min(a.idle, between(g, 2, 6))
	}
}

func monthOf(t time.Time) time.Time {
	return time.Date(t.Year(), t.Month(), 1, 0, 0, 0, 0, time.UTC)
}

// monthsApart returns the number of months from a to b.
func monthsApart(a, b time.Time) int {
	return (b.Year()-a.Year())*12 + int(b.Month()) - int(a.Month())
}

// iban returns an account number that passes the usual check (ISO 7064, mod 97-10) and can't be anybody's: no country
// has the code XB.
func iban(number int) string {
	const bankCode = 4021
	// The check digits are computed over the number followed by the country's letters as digits (X = 33, B = 11) and
	// two zeros. Reducing on the way keeps the number small.
	rest := bankCode
	for _, part := range []struct{ digits, shift int }{{number / 1_000_000, 1_000_000}, {number % 1_000_000, 1_000_000}, {331100, 1_000_000}} {
		rest = (rest*part.shift + part.digits) % 97
	}
	return fmt.Sprintf("XB%02d%04d%012d", 98-rest, bankCode, number)
}
