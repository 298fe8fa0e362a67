package demo

import (
	"fmt"
	"slices"
	"strconv"
	"time"
)

// figures are what a comparison shows of one half.
type figures struct {
	queries, assigned, duplicates int
	median, longest               time.Duration // waits, from the click
	unserved                      int
	cpu                           time.Duration // of PostgreSQL
	measured                      bool          // cpu is known
}

// figureNames are the rows of the table, in the order of [figures.cells].
var figureNames = []string{"queries run", "assignments", "duplicate assignments", "wait of the median user", "longest wait", "users not served", "CPU time of PostgreSQL"}

func (h half) figures() figures {
	f := figures{queries: h.queries, cpu: h.cpu, measured: h.measured}
	var items []string
	var waits []time.Duration
	for _, o := range h.outcomes {
		if o.err == nil {
			items = append(items, o.items...)
			waits = append(waits, o.wait)
		}
	}
	slices.Sort(waits)
	slices.Sort(items)
	f.assigned = len(items)
	f.duplicates = f.assigned - len(slices.Compact(items))
	f.median, f.longest = waits[len(waits)/2], waits[len(waits)-1]
	f.unserved = len(h.outcomes) - len(waits)
	return f
}

func (f figures) cells() []string {
	cpu := "n/a"
	if f.measured {
		cpu = fmt.Sprintf("%.1f s", f.cpu.Seconds())
	}
	seconds := func(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
	return []string{strconv.Itoa(f.queries), strconv.Itoa(f.assigned), strconv.Itoa(f.duplicates), seconds(f.median), seconds(f.longest),
		strconv.Itoa(f.unserved), cpu}
}

// projected calculates from the figures of some naive users those of more: each of them costs as much, and the machine's
// cores are busy already.
func (f figures) projected(from, to int) figures {
	times := func(n int) int { return (n*to + from/2) / from }
	f.queries, f.assigned, f.duplicates, f.unserved = times(f.queries), times(f.assigned), times(f.duplicates), times(f.unserved)
	longer := func(d time.Duration) time.Duration { return d * time.Duration(to) / time.Duration(from) }
	f.median, f.longest, f.cpu = longer(f.median), longer(f.longest), longer(f.cpu)
	return f
}

// rowsOf returns the table's rows, with those columns.
func rowsOf(columns ...[]string) [][]string {
	rows := make([][]string, len(figureNames))
	for i, name := range figureNames {
		rows[i] = []string{name}
		for _, cells := range columns {
			rows[i] = append(rows[i], cells[i])
		}
	}
	return rows
}

// table is the comparison as the page shows it.
type table struct {
	Heads     []string   `json:"heads"`
	Rows      [][]string `json:"rows"`
	Projected int        `json:"projected"` // the column that was calculated, not run; 0: there is none
}

// compared returns the table of the two halves, or nil as long as one of them is missing. If fewer people clicked naively than
// on the nodes, a column says what as many would have seen.
func compared(naive, shared *half) *table {
	if naive == nil || shared == nil {
		return nil
	}
	few, many := len(naive.outcomes), len(shared.outcomes)
	left, right := naive.figures(), shared.figures().cells()
	without, with := strconv.Itoa(few), strconv.Itoa(many)
	if few >= many {
		rows := append([][]string{{"people", without, with}}, rowsOf(left.cells(), right)...)
		return &table{Heads: []string{"Without", "With getwork"}, Rows: rows}
	}
	calculated := left.projected(few, many).cells()
	for i := range calculated {
		calculated[i] = "≈ " + calculated[i]
	}
	rows := append([][]string{{"people", without, with, with}}, rowsOf(left.cells(), calculated, right)...)
	return &table{Heads: []string{"Without", "Projected", "With getwork"}, Rows: rows, Projected: 2}
}
