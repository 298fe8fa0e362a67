package plan

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The specification is in testdata/spec. Each situation has a name, a supply, and requests with their answers:
//
//	# The lowest free place is given.
//	task: for desk
//	whole run: a, job (3 places, Ann 1, Bob/agent-2 3, not Cid), b (group g, busy), c (needs french law)
//	Eve wants 2, room 1, lingers, in desk  -> partial a
//	Max wants 1, manager                    -> assigned job at 2
//	Cid wants 1, away                       -> none: away
//	Zoe wants 1, elsewhere                  -> waits
//	Kim wants 1, can french law             -> assigned c
//
// "ran" says that the shelf's run was for the request.
//
// Requests are numbered as they come. The supply is a whole or cut run or shelf, or an inbox, followed by "more to read",
// "others held" or "used" if that applies. With nothing after the colon and no "others held" the query matched nothing.
func TestSpecification(t *testing.T) {
	files, err := filepath.Glob("testdata/spec/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no specification: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for block := range strings.SplitSeq(strings.TrimSpace(string(text)), "\n\n") {
			s := parse(t, block)
			t.Run(strings.TrimSuffix(filepath.Base(file), ".txt")+"/"+s.name, func(t *testing.T) {
				if diff := cmp.Diff(s.want, s.render(Assign(s.requests, s.supply))); diff != "" {
					t.Errorf("want -, got +\n%s", diff)
				}
				if diff := cmp.Diff(twin(s.requests, s.supply), Assign(s.requests, s.supply)); diff != "" {
					t.Errorf("twin -, plan +\n%s", diff)
				}
			})
		}
	}
}

// situation is one block of the specification.
type situation struct {
	name     string
	groups   []string // of the task
	supply   Supply
	names    []string // of the items
	requests []Request
	asked    []string // the requests' lines
	want     []string
}

func parse(t *testing.T, block string) situation {
	t.Helper()
	var s situation
	for line := range strings.SplitSeq(block, "\n") {
		line = strings.Join(strings.Fields(line), " ")
		head, tail, _ := strings.Cut(line, ":")
		switch {
		case strings.HasPrefix(line, "# "):
			s.name = strings.TrimSpace(s.name + " " + line[2:])
		case head == "task":
			s.groups = strings.Fields(strings.TrimPrefix(tail, " for "))
		case s.supply.Items == nil:
			s.parseSupply(t, head, tail)
		default:
			asked, _, _ := strings.Cut(line, "->")
			if asked = strings.TrimSpace(asked); asked != "" {
				s.parseRequest(t, asked)
			}
			s.want = append(s.want, line)
		}
	}
	return s
}

var sources = map[string]Supply{
	"whole run": {Source: Result}, "cut run": {Source: Result, Cut: true},
	"whole shelf": {Source: Shelf}, "cut shelf": {Source: Shelf, Cut: true}, "stale shelf": {Source: Shelf, Stale: true},
	"inbox": {Source: Inbox},
}

var itemText = regexp.MustCompile(`(\w+)(?: \(([^)]*)\))?`)

func (s *situation) parseSupply(t *testing.T, head, tail string) {
	words := split(head)
	supply, ok := sources[words[0]]
	if !ok {
		t.Fatalf("unknown supply %q", head)
	}
	supply.Items = []Item{}
	for _, match := range itemText.FindAllStringSubmatch(tail, -1) {
		s.names = append(s.names, match[1])
		supply.Items = append(supply.Items, parseItem(t, match[2]))
	}
	supply.More = slices.Contains(words, "more to read")
	supply.Used = slices.Contains(words, "used")
	supply.Usable = len(supply.Items) > 0 || slices.Contains(words, "others held")
	s.supply = supply
}

func parseItem(t *testing.T, text string) Item {
	it := Item{Slots: 1}
	for _, part := range split(text) {
		first, rest, _ := strings.Cut(part, " ")
		switch {
		case strings.HasPrefix(rest, "place"):
			scan(t, first, "%d", &it.Slots)
		case first == "group":
			it.Exclusive = rest
		case first == "needs":
			it.Needs = strings.Fields(rest)
		case first == "not":
			it.Barred = append(it.Barred, Bar{rest, LetGo})
		case part == "busy":
			it.Busy = true
		case part == "once":
			it.Once = true
		default:
			var slot int
			scan(t, rest, "%d", &slot)
			it.Holders, it.Taken = append(it.Holders, holder(first)), append(it.Taken, slot)
		}
	}
	return it
}

func (s *situation) parseRequest(t *testing.T, text string) {
	r := Request{ID: int64(len(s.requests) + 1), Room: NoLimit}
	room, away := NoLimit, false
	for i, part := range split(text) {
		first, rest, _ := strings.Cut(part, " ")
		switch {
		case i == 0:
			r.Holder = holder(first)
			scan(t, rest, "wants %d", &r.Wanted)
		case first == "room":
			scan(t, rest, "%d", &room)
		case first == "in":
			r.Groups = strings.Fields(rest)
		case first == "can":
			r.Skills = strings.Fields(rest)
		case part == "elsewhere":
			r.Elsewhere = true
		case part == "lingers":
			r.Lingers = true
		case part == "manager":
			r.Anything = true
		case part == "away":
			away = true
		default:
			t.Fatalf("what is %q?", part)
		}
	}
	r.Only(s.groups)
	if away {
		r.Limit(0, Away)
	}
	r.Limit(room, AtLimit)
	s.requests, s.asked = append(s.requests, r), append(s.asked, text)
}

func holder(name string) Holder {
	user, instance, _ := strings.Cut(name, "/")
	return Holder{user, instance}
}

func split(list string) []string {
	var parts []string
	for part := range strings.SplitSeq(list, ",") {
		if part = strings.TrimSpace(part); part != "" {
			parts = append(parts, part)
		}
	}
	return parts
}

func scan(t *testing.T, text, format string, into *int) {
	t.Helper()
	if _, err := fmt.Sscanf(text, format, into); err != nil {
		t.Fatalf("%q is not like %q: %v", text, format, err)
	}
}

var (
	outcomes = map[Outcome]string{Wait: "waits", Linger: "lingers", Assigned: "assigned", Partial: "partial", None: "none"}
	reasons  = map[Reason]string{NoReason: "", NoMatch: ": no match", AllHeld: ": all held", Barred: ": barred", AtLimit: ": at limit", Away: ": away"}
)

// render writes the plan as the specification does.
func (s *situation) render(p Plan) []string {
	lines := slices.Clone(s.asked)
	for i, a := range p.Answers {
		var got []string
		for _, g := range a.Grants {
			name := s.names[g.Item]
			if s.supply.Items[g.Item].Slots > 1 || g.Slot != 1 {
				name += fmt.Sprintf(" at %d", g.Slot)
			}
			got = append(got, name)
		}
		lines[i] += " -> " + strings.TrimSpace(outcomes[a.Outcome]+reasons[a.Reason]+" "+strings.Join(got, ", "))
	}
	if p.Spent {
		lines = append(lines, "-> the shelf is spent")
	}
	if p.Short {
		lines = append(lines, "-> read more")
	}
	return lines
}
