package bank

import (
	"math/rand/v2"
	"time"
)

// statementMonths is how many monthly statements an application needs, of the months before it was submitted.
const statementMonths = 6

// statement is a month as the borrower typed it. A zero time means not yet.
type statement struct {
	month               time.Time
	opening, closing    int64
	submitted, verified time.Time
}

// statements returns the statements that the loan needs, oldest first. About a sixth of the open applications have sent
// none, a third are fully verified, and half wait for somebody to look, some of them incomplete.
func (w *world) statements(i int) []statement {
	g := draw(drawStatements, i)
	l := &w.loans[i]
	a := &w.accounts[l.account]
	sent, verified := statementMonths, statementMonths
	if l.open() {
		switch roll := g.IntN(100); {
		case roll < 15:
			sent, verified = 0, 0
		case roll < 25:
			sent = between(g, 2, statementMonths-1)
			verified = g.IntN(sent)
		case roll < 67:
			verified = pick(g, []int{0, 0, 0, 1, 2, 4})
		}
	}
	first := monthOf(l.submitted).AddDate(0, -statementMonths, 0)
	submitted := l.later(g, l.submitted, 21*24*time.Hour)
	list := make([]statement, statementMonths)
	for n := range list {
		s := &list[n]
		s.month = first.AddDate(0, n, 0)
		at := monthsApart(a.first, s.month)
		s.opening, s.closing = a.closings[at-1], a.closings[at]
		if n >= sent {
			continue
		}
		s.submitted = submitted
		if n < verified {
			s.verified = l.later(g, submitted, 72*time.Hour)
		} else if chance(g, 6) {
			s.mistype(g)
		}
	}
	return list
}

// later returns a moment after t, within the span, while the application was open, and not past the business day.
func (l *loan) later(g *rand.Rand, t time.Time, span time.Duration) time.Time {
	limit := businessDay.Add(22 * time.Hour)
	if !l.decided.IsZero() {
		limit = l.decided
	}
	span = min(span, limit.Sub(t))
	if span < time.Minute {
		return t
	}
	return t.Add(time.Duration(g.Int64N(int64(span/time.Second))) * time.Second)
}

// mistype makes the statement wrong in one of the usual ways: a flattered balance, swapped digits, a lost sign.
func (s *statement) mistype(g *rand.Rand) {
	switch g.IntN(4) {
	case 0:
		s.opening += int64(between(g, 1, 30)) * 100_00
	case 1:
		s.closing += int64(between(g, 2, 40)) * 50_00
	case 2:
		euros := s.opening / 100
		s.opening += (euros%10*10 + euros/10%10 - euros%100) * 100
		s.closing += 9_00 // otherwise equal digits could be swapped, which would be right
	default:
		if s.opening >= 0 {
			s.opening += 1_000_00
		} else {
			s.opening = -s.opening
		}
	}
}

// declaration is the income that a borrower states.
type declaration struct {
	employer           string
	net                int64
	submitted, checked time.Time
}

// declaration rounds as people do, and overstates the income of one open application in seven.
func (w *world) declaration(i int) declaration {
	g := draw(drawDeclaration, i)
	l := &w.loans[i]
	a := &w.accounts[l.account]
	d := declaration{employer: a.employer, net: (a.net + 25_00) / 50_00 * 50_00, submitted: l.later(g, l.submitted, 7*24*time.Hour)}
	if chance(g, 14) {
		d.net = (a.net*int64(between(g, 108, 160))/100 + 25_00) / 50_00 * 50_00
	}
	if !l.open() || chance(g, 45) {
		d.checked = l.later(g, d.submitted, 96*time.Hour)
	}
	return d
}
