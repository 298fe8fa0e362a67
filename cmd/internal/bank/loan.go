package bank

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

const (
	submitted = "submitted"
	inReview  = "in_review"
	active    = "active"
	repaid    = "repaid"
	rejected  = "rejected"
	withdrawn = "withdrawn"
)

// purpose is what a loan is for: its usual size in euro, and its payee.
type purpose struct {
	name      string
	low, high int
	payee     string
}

type loan struct {
	account    int // index into accounts
	amount     int64
	rate       int64 // hundredths of a percent a year
	purpose    purpose
	term       int // months
	submitted  time.Time
	decided    time.Time // zero while the application is open
	status     string
	instalment int64
	dueDay     int
	missed     int  // how many of the latest instalments were not paid
	short      bool // and the one before them only by half
}

func (l *loan) open() bool    { return l.status == submitted || l.status == inReview }
func (l *loan) granted() bool { return l.status == active || l.status == repaid }

// due returns the day of the nth instalment, counted from 0.
func (l *loan) due(n int) time.Time {
	return monthOf(l.decided).AddDate(0, n+1, l.dueDay-1)
}

// dueSoFar returns how many instalments have fallen due. It ignores dueDay, since businessDay is the end of a month.
func (l *loan) dueSoFar() int {
	return min(l.term, monthsApart(l.decided, businessDay))
}

// newLoans returns the applications of the last two years in the order in which they came, a quarter of them from the
// last 90 days.
func newLoans(g *rand.Rand, n int) []loan {
	loans := make([]loan, n)
	for i := range loans {
		days := g.IntN(90)
		if chance(g, 75) {
			days = 90 + g.IntN(640)
		}
		loans[i].submitted = businessDay.AddDate(0, 0, -days).Add(officeTime(g))
	}
	slices.SortStableFunc(loans, func(a, b loan) int { return cmp.Compare(a.submitted.Unix(), b.submitted.Unix()) })
	for i := range loans {
		loans[i].apply(g)
		loans[i].decide(g)
	}
	return loans
}

// officeTime returns a time of day between 7:00 and 21:00.
func officeTime(g *rand.Rand) time.Duration {
	return 7*time.Hour + time.Duration(g.IntN(14*3600))*time.Second
}

func (l *loan) apply(g *rand.Rand) {
	l.purpose = pick(g, purposes)
	l.amount = int64(between(g, l.purpose.low/250, l.purpose.high/250)) * 250_00
	l.rate = int64(between(g, 349, 989))
	l.term = pick(g, []int{6, 12, 12, 24, 24, 36, 36, 48, 60, 72, 84})
	if l.amount > 12_000_00 {
		l.term = max(l.term, 36)
	}
	// The usual annuity, rounded to the cent.
	monthly := float64(l.rate) / 120_000
	l.instalment = int64(math.Round(float64(l.amount) * monthly / (1 - math.Pow(1+monthly, -float64(l.term)))))
}

// decide settles most applications, older ones more surely, and lets some of the granted loans fall behind.
func (l *loan) decide(g *rand.Rand) {
	decided := l.submitted.AddDate(0, 0, between(g, 5, 30))
	if decided.After(businessDay) || businessDay.Sub(l.submitted) < 90*24*time.Hour && chance(g, 45) {
		l.status = pick(g, []string{submitted, inReview})
		return
	}
	l.decided = decided
	switch {
	case chance(g, 13):
		l.status = rejected
	case chance(g, 4):
		l.status = withdrawn
	case l.dueSoFar() == l.term:
		l.status = repaid
	default:
		l.status = active
		if due := l.dueSoFar(); due > 1 && chance(g, 11) {
			l.missed = min(due-1, pick(g, []int{1, 1, 1, 2, 2, 3, 4, 6}))
			l.short = chance(g, 30)
		}
	}
}
