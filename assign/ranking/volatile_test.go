package ranking

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// sample is a list as a server could have it.
func sample() *forbidden {
	f := newForbidden()
	for _, name := range []string{"set_config", "query_to_xml", "pg_sleep", "pg_advisory_lock", "lo_export", "pg_is_in_recovery"} {
		f.add(name, true)
	}
	for _, name := range []string{"dblink", "schedule", "send", "read", "archive", "lock", "notify", "Mixed", "größe", `a"b`, "x$y", strings.Repeat("n", nameLimit)} {
		f.add(name, false)
	}
	return f
}

func TestForbiddenNamesAreFound(t *testing.T) {
	t.Parallel()
	f := sample()
	for text, want := range map[string]string{
		`select set_config('role', 'none', true) as item`:             "set_config",
		`select SET_Config ('role', 'none', true)`:                    "set_config",
		`select "set_config"('role', 'none', true)`:                   "set_config",
		`select pg_catalog . "set_config" /* a */ ('role')`:           "set_config",
		`select x.set_config from t x`:                                "set_config",
		"select 1 -- set_config":                                      "set_config",
		`select 'set_config'`:                                         "set_config",
		`select $$set_config$$, $set_config$ $set_config$`:            "set_config",
		`select E'\tset_config'`:                                      "", // the t is a letter before it: text that nobody executes
		`select U&"\0073et_config"('role', 'none', true)`:             disguise,
		`select u&"!0073et_config" uescape '!' ('role')`:              disguise,
		`select U&'\0073'`:                                            "",
		`select a &"b" from t`:                                        "",
		`select set_configs, _set_config, set_config_, xset_config`:   "",
		`select 1pg_sleep(1)`:                                         "pg_sleep",
		`select 1e5pg_sleep(1), 0x1f`:                                 "pg_sleep",
		`select loan_1pg_sleep`:                                       "",
		`select 1`:                                                    "",
		``:                                                            "",
		`select SET_CONFİG('a')`:                                      "set_config", // in a Turkish database
		`select äpg_sleep(1)`:                                         "pg_sleep",   // more than PostgreSQL would call
		`select dblink('')`:                                           "dblink",
		"select public.\"dblink\" \n\t /* a /* b */ ( */ -- c\n ('')": "dblink",
		"select dblink--\r(1)":                                        "dblink",
		"select dblink/*/ ( */(1)":                                    "dblink",
		`select dblink, schedule from send order by read`:             "",
		`select l.archive - (1) from l`:                               "",
		`select archive / (2)`:                                        "",
		`select 'schedule' || (x)`:                                    "",
		`select schedule /* (1)`:                                      "",
		`select schedule -- (1)`:                                      "",
		`select mixed(1), "Mixed"(2)`:                                 "mixed",
		`select GRÖßE(1)`:                                             "größe",
		`select größe from t`:                                         "",
		`select größen(1)`:                                            "",
		`select "a""b"(1)`:                                            `a""b`,
		`select x$Y (1)`:                                              "x$y",
		`select crosstab('select 1')`:                                 "crosstab",
		`select * from CrossTab4 ('select 1') t`:                      "crosstab4",
		`select connectby(''), xpath_table('')`:                       "connectby",
		`select pgr_dijkstra('select 1', 1, 2)`:                       "pgr_dijkstra",
		`select crosstab, pgr_cost as cypher from connectby`:          "",
		`select ` + strings.Repeat("n", nameLimit+9) + `(1)`:          strings.Repeat("n", nameLimit),
		`select ` + strings.Repeat("n", nameLimit-1) + `(1)`:          "",
		`select dblink(1), u&"x"`:                                     "dblink", // the first
	} {
		got, before := f.find(text)
		if got != want {
			t.Errorf("%s: found %q, want %q", text, got, want)
		}
		if want == "" {
			continue
		}
		folded := strings.Map(fold, text)
		if at := utf8.RuneCountInString(folded[:strings.Index(folded, want)]); before != at {
			t.Errorf("%s: at %d, want %d", text, before, at)
		}
	}
}

// A text in which every name has all the rest as its comment takes no longer for it. It is refused.
func TestFindingTakesLinearTime(t *testing.T) {
	t.Parallel()
	f := sample()
	for _, text := range []string{strings.Repeat("send/*", 80_000), strings.Repeat("send--", 80_000), strings.Repeat("1a", 250_000), strings.Repeat("größe ", 60_000) + strings.Repeat("größe/*", 60_000),
		strings.Repeat("send"+strings.Repeat(" ", 500), 1000), "1" + strings.Repeat("send", 100_000), strings.Repeat(`u&"`, 150_000)} {
		began := time.Now()
		f.find(text)
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("%.20s… takes %s", text, took)
		}
	}
	if name, _ := f.find(strings.Repeat("send/*", 80_000)); name != "send" {
		t.Error("a text that is too much to read is let through")
	}
	if name, _ := f.find(strings.Repeat("send /* not a call */, ", 5000)); name != "" {
		t.Errorf("%s is called, the many comments say", name)
	}
}

// disguised writes a call of a function as chance has it, in a way that PostgreSQL takes for a call. next returns a number
// from 0 to n-1.
func disguised(name string, next func(n int) int) string {
	var b strings.Builder
	gap := func() {
		for range next(4) {
			b.WriteString([]string{" ", "\t", "\n", "\r\n", "\f", "/**/", "/* a ( */", "/* /* b */ */", "--\n", "-- c (\n", "/*/ d */", "/***/", "/* -- */", "-- /*\n", "/* ' \" $$ */"}[next(15)])
		}
	}
	word := func(name string) {
		if next(2) == 0 {
			b.WriteString(`"` + name + `"`)
			return
		}
		for _, c := range name {
			s := string(c)
			if next(2) == 0 {
				s = strings.ToUpper(s)
			}
			b.WriteString(s)
		}
	}
	if next(2) == 0 {
		word("pg_catalog")
		gap()
		b.WriteByte('.')
		gap()
	}
	word(name)
	gap()
	b.WriteByte('(')
	gap()
	return b.String()
}

// dressed puts a call, which lacks its closing bracket, into a query.
func dressed(call string, next func(n int) int) string {
	call += ")"
	return fmt.Sprintf([]string{
		"select %s as item",
		"select 1+%s::int as item",
		"with a as materialized (select %s) select 1 as item",
		"with a(b)as(select 1)select 1 as item from a where %s",
		"select 'it''s' as item, case when %s then $a$x$a$else''end",
		"select 1 as item from %s",
		"select(select %s)as item",
		"select*from(values(%s))as v(item)",
		"select 1 as item order by %s",
		"select array[%s]as item",
		"select E'\\''||%s as item",
		"select '/*'||%s||'*/'as item",
		"select $$--$$||%s as item",
		"select \"a\".item from(select %s as item)\"a\"",
		"select 1 as item /* -- */ where not %s --",
	}[next(15)], call)
}

// chance returns numbers that bytes decide, and 0 when they are used up.
func chance(of []byte) func(n int) int {
	return func(n int) int {
		if len(of) == 0 {
			return 0
		}
		var c byte
		c, of = of[0], of[1:]
		return int(c) % n
	}
}

// However a call is written, and whatever stands around it, it is found. Whatever a text is, finding ends, and the place that
// it names is in the text.
func FuzzBoundary(f *testing.F) {
	f.Add("select 1", []byte("any"), "")
	f.Add("/* '", []byte{}, "' */")
	f.Add(`u&"`, []byte{1, 2, 3, 4, 5, 6, 7, 8, 9}, "\xff(")
	for i := range uint64(20) {
		r := rand.New(rand.NewPCG(i, 1))
		b := make([]byte, 40)
		for j := range b {
			b[j] = byte(r.Uint32())
		}
		f.Add(" ", b, " ")
	}
	list := sample()
	names := []string{"set_config", "query_to_xml", "pg_sleep", "dblink", "schedule", "send", "crosstab", "crosstab3", "pgr_dijkstra", "connectby"}
	f.Fuzz(func(t *testing.T, before string, how []byte, after string) {
		next := chance(how)
		call := dressed(disguised(names[next(len(names))], next), next)
		if name, _ := list.find(call); name == "" {
			t.Errorf("not found: %s", call)
		}
		// What stands before it can continue a word, or read the call as text: PostgreSQL then calls nothing.
		if name, at := list.find(before + "\n" + call + after); name == "" || at > utf8.RuneCountInString(before+call+after)+1 {
			t.Errorf("found %q at %d of %q %q %q", name, at, before, call, after)
		}
		for _, text := range []string{before, after, string(how), before + after} {
			if name, at := list.find(text); name == "" && at != 0 || at > utf8.RuneCountInString(text) {
				t.Errorf("found %q at %d of %q", name, at, text)
			}
		}
	})
}
