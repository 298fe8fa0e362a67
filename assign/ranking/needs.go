package ranking

import (
	"encoding/json"
	"slices"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"getwork/assign"
)

// An item may need groups or skills, all of them. The items of a result fall into classes, by what they need: rounds read the best of each
// class that somebody may have who waits, instead of all that is in front of them.

// MaxClasses is how many different sets of needs the items of a result, or of an inbox, may have. Rows beyond them are passed over.
const MaxClasses = 256

// NeedSet is what the items of one class need.
type NeedSet struct {
	Needs []string `json:"needs"`           // in order; empty: nothing
	Items int64    `json:"items,omitempty"` // how many items of the run are of this class
}

// NeedsOf returns what an item of the result needs; nil: nothing.
func (f *Result) NeedsOf(c Candidate) []string {
	if c.Class == 0 || len(f.Needs[c.Class-1].Needs) == 0 {
		return nil
	}
	return f.Needs[c.Class-1].Needs
}

// mostOfClasses bounds best where items need something.
const mostOfClasses = 20_000

// best returns the best n items; if they are of classes, about n in all, but at least so many of each.
func (f *Result) best(n, ofEach int) []Candidate {
	if f.Needs == nil {
		return f.Items[:min(n, len(f.Items))]
	}
	each := max(n/len(f.Needs), min(ofEach, mostOfClasses/len(f.Needs)))
	taken := make([]int, len(f.Needs))
	var best []Candidate
	for _, c := range f.Items {
		if taken[c.Class-1] < each {
			taken[c.Class-1]++
			best = append(best, c)
		}
	}
	return best
}

// needSets numbers the sets of needs of a result, from 1, as they come.
type needSets struct {
	sets  []NeedSet
	known map[string]int // by the JSON of a value; 0: it can't be used
}

// class returns the number of the set in a value of the column needs; 0: the row can't be used.
func (n *needSets) class(value []byte) int {
	if class, known := n.known[string(value)]; known {
		return class
	}
	if n.known == nil {
		n.known = map[string]int{}
	}
	needs, usable := needsIn(value)
	class := 0
	if usable {
		class = n.number(needs)
	}
	if len(n.known) < 16*MaxClasses { // the same set may be written in very many ways
		n.known[string(value)] = class
	}
	return class
}

func (n *needSets) number(needs []string) int {
	if at := slices.IndexFunc(n.sets, func(s NeedSet) bool { return slices.Equal(s.Needs, needs) }); at >= 0 {
		return at + 1
	}
	if len(n.sets) == MaxClasses {
		return 0
	}
	n.sets = append(n.sets, NeedSet{Needs: append([]string{}, needs...)})
	return len(n.sets)
}

// plain reports whether no row needs anything.
func (n *needSets) plain() bool {
	return !slices.ContainsFunc(n.sets, func(s NeedSet) bool { return len(s.Needs) > 0 })
}

// needsIn reads a value of the column needs from a row in JSON: a name, or an array of names. Null and empty names say nothing.
func needsIn(value []byte) (needs []string, usable bool) {
	var names []*string
	if len(value) > 0 && value[0] == '"' {
		value = []byte("[" + string(value) + "]")
	}
	if len(value) > 0 && json.Unmarshal(value, &names) != nil {
		return nil, false
	}
	for _, name := range names {
		if name != nil && *name != "" {
			needs = append(needs, *name)
		}
	}
	needs, err := assign.CheckSkills("needs", needs, assign.MaxNeeds)
	return needs, err == nil
}

// isNeeds reports whether a column is text or an array of texts.
func isNeeds(column pgconn.FieldDescription) bool {
	switch column.DataTypeOID {
	case pgtype.TextOID, pgtype.TextArrayOID, pgtype.VarcharOID, pgtype.VarcharArrayOID:
		return true
	}
	return false
}
