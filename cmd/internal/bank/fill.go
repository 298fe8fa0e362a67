package bank

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5/pgconn"
)

// source writes one table in n steps, each of which appends any number of rows.
type source struct {
	table string
	n     int
	write func(r *row, i int)
}

// fill writes all tables. The transactions come before the statements, which repeat balances found while making the
// transactions.
func fill(ctx context.Context, conn *pgconn.PgConn, w *world, progress func(step string, done, total int64)) error {
	sources := []source{
		{"person", len(w.people), w.writePerson},
		{"account", len(w.accounts), w.writeAccount},
		{"loan", len(w.loans), w.writeLoan},
		{"transaction", len(w.accounts), w.writeTransactions},
		{"statement", len(w.loans), w.writeStatements},
		{"income_declaration", len(w.loans), w.writeDeclaration},
		{"instalment", len(w.loans), w.writeInstalments},
	}
	for _, s := range sources {
		if err := s.copy(ctx, conn, progress); err != nil {
			return err
		}
	}
	return nil
}

// copy streams the table and reports progress some hundred times. It counts the source's steps, accounts or loans,
// because their number is known before their rows are made.
func (s source) copy(ctx context.Context, conn *pgconn.PgConn, progress func(step string, done, total int64)) error {
	step, total := "write "+s.table+" rows", int64(s.n)
	progress(step, 0, total)
	i, every := 0, max(s.n/100, 1)
	return copyRows(ctx, conn, s.table, func(r *row) bool {
		if i < s.n {
			s.write(r, i)
			i++
			if i%every == 0 || i == s.n {
				progress(step, int64(i), total)
			}
		}
		return i < s.n
	})
}

func (w *world) writePerson(r *row, i int) {
	p := w.people[i]
	r.int(i + 1)
	r.text(p.first)
	r.text(p.last)
	r.date(p.born)
	r.text(p.street)
	r.text(p.city)
	r.end()
}

func (w *world) writeAccount(r *row, i int) {
	a := w.accounts[i]
	r.int(i + 1)
	r.int(a.person + 1)
	r.text(iban(i + 1))
	r.date(a.opened)
	r.end()
}

func (w *world) writeLoan(r *row, i int) {
	l := w.loans[i]
	r.int(i + 1)
	r.int(l.account + 1)
	r.cents(l.amount)
	r.cents(l.rate)
	r.text(l.purpose.name)
	r.int(l.term)
	r.time(l.submitted)
	r.time(l.decided)
	r.text(l.status)
	r.end()
}

// writeTransactions makes the lines of one account and keeps its month ends.
func (w *world) writeTransactions(r *row, i int) {
	g := newLedger(w, i)
	for m := w.accounts[i].first; !m.After(businessDay); m = m.AddDate(0, 1, 0) {
		for _, l := range g.month(m) {
			w.lines++
			r.int(w.lines)
			r.int(i + 1)
			r.date(l.on)
			r.text(l.kind)
			r.cents(l.amount)
			r.cents(l.balance)
			r.text(l.who)
			r.end()
		}
		w.accounts[i].closings = append(w.accounts[i].closings, g.balance)
	}
}

func (w *world) writeStatements(r *row, i int) {
	for _, s := range w.statements(i) {
		w.papers++
		r.int(w.papers)
		r.int(w.loans[i].account + 1)
		r.date(s.month)
		if s.submitted.IsZero() {
			r.null()
			r.null()
		} else {
			r.cents(s.opening)
			r.cents(s.closing)
		}
		r.time(s.submitted)
		r.time(s.verified)
		r.end()
	}
}

func (w *world) writeDeclaration(r *row, i int) {
	d := w.declaration(i)
	r.int(i + 1)
	r.text(d.employer)
	r.cents(d.net)
	r.time(d.submitted)
	r.time(d.checked)
	r.end()
}

func (w *world) writeInstalments(r *row, i int) {
	l := w.loans[i]
	if !slices.Contains([]string{active, repaid}, l.status) {
		return
	}
	for n := range l.term {
		r.int(i + 1)
		r.int(n + 1)
		r.date(l.due(n))
		r.cents(l.instalment)
		r.end()
	}
}
