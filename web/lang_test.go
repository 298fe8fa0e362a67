package web

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"getwork/assign"
)

// modules are the page's modules, by their names, with their literals.
func modules(t *testing.T) map[string][]literal {
	t.Helper()
	all := map[string][]literal{}
	for name, file := range theSite().files {
		if path.Ext(name) == ".js" && !strings.HasPrefix(name, "lib/") && !strings.HasPrefix(name, "lang/") {
			all[name] = literals(string(file.plain))
		}
	}
	if len(all) < 50 {
		t.Fatalf("%d modules", len(all))
	}
	return all
}

var (
	pluralBefore = regexp.MustCompile(`\bplural\([^'"` + "`" + `]*$`)
	pluralAfter  = regexp.MustCompile(`\bplural\([^'"` + "`" + `]*'(?:[^'\\]|\\.)*', $`)
	anyImport    = regexp.MustCompile(`(?:\bfrom|\bimport)[\s(]*['"](\.{1,2}/[^'"]+)['"]`)
	htmlTag      = regexp.MustCompile(`(?s)<!--.*?-->|<[^>]*>`)
)

// message is a text that modules use.
type message struct {
	plural bool
	one    string
	in     []string // modules
}

// messages are a module's texts, by their English.
func messages(all []literal) map[string]message {
	found := map[string]message{}
	one := ""
	for _, l := range all {
		switch {
		case l.tag == "t":
			found[l.key()] = message{}
		case l.plain && pluralBefore.MatchString(l.before):
			one = l.parts[0]
		case l.plain && pluralAfter.MatchString(l.before):
			found[l.parts[0]] = message{plural: true, one: one}
		}
	}
	return found
}

// reach adds a module and all that it imports, also later, except views, which the shell loads.
func reach(name string, known map[string]bool) {
	file := theSite().files[name]
	if file == nil || known[name] {
		return
	}
	known[name] = true
	for _, m := range anyImport.FindAllSubmatch(file.plain, -1) {
		if to := path.Join(path.Dir(name), string(m[1])); name != "page.js" || !strings.HasPrefix(to, "views/") {
			reach(to, known)
		}
	}
}

// wanted are the texts of each part of the page: of a view, if no other has it, and else of all, in "page".
func wanted(t *testing.T) map[string]map[string]message {
	t.Helper()
	all := modules(t)
	uses := map[string][]string{} // which parts use a text
	texts := map[string]message{}
	shell := map[string]bool{}
	reach("page.js", shell)
	reached := maps.Clone(shell)
	use := func(part, module string, found map[string]message) {
		for key, m := range found {
			m.in = append(texts[key].in, module)
			texts[key] = m
			if !slices.Contains(uses[key], part) {
				uses[key] = append(uses[key], part)
			}
		}
	}
	for module := range shell {
		use("page", module, messages(all[module]))
	}
	markup := map[string]message{}
	for _, text := range visible([]string{string(theSite().page)}) {
		markup[text] = message{}
	}
	use("page", "index.html", markup)
	for _, view := range views {
		part := strings.Split(view, "/")[1]
		if part == "" {
			part = "desk"
		}
		own := maps.Clone(shell)
		reach("views/"+part+".js", own)
		for module := range own {
			if reached[module] = true; !shell[module] {
				use(part, module, messages(all[module]))
			}
		}
	}
	asking := cards(t)
	for _, module := range []string{"card.js", "approve.js", "screen.js"} {
		reached[module] = true
		maps.Copy(asking, messages(all[module]))
	}
	parts := map[string]map[string]message{"card": asking}
	for key, of := range uses {
		if slices.Contains(of, "account") { // which these views load, too
			of = slices.DeleteFunc(of, func(part string) bool { return part == "users" || part == "webhooks" })
		}
		part := of[0]
		if len(of) > 1 {
			part = "page"
		}
		if parts[part] == nil {
			parts[part] = map[string]message{}
		}
		parts[part][key] = texts[key]
	}
	for name, found := range all {
		if m := messages(found); len(m) > 0 && !reached[name] && name != "lang.js" {
			t.Errorf("no view reaches %s, which has texts: %v", name, slices.Collect(maps.Keys(m)))
		}
	}
	return parts
}

var (
	cardMarkup = regexp.MustCompile("(?s)card\\.Page\\(`(.*?)`")
	cardText   = regexp.MustCompile(`(?m)^\twords\w+\s+= "(.*)"$|Title string \}\{"(.*?)"|asking\n(?s:.*?)\}\{a, "(.*?)"`)
	cardHole   = regexp.MustCompile(`\{\{.*?\}\}`)
)

// cards are the texts of the pages beside the page that load card.js, as they stand in their sources.
func cards(t *testing.T) map[string]message {
	t.Helper()
	found := map[string]message{}
	for _, file := range []string{"identity/cli.go", "identity/wall.go", "identity/oidc/page.go", "identity/oidc/failure.go"} {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range cardMarkup.FindAllSubmatch(source, -1) {
			for _, text := range visible([]string{cardHole.ReplaceAllString(string(m[1]), "")}) {
				if text != "" { // an attribute that is all data
					found[text] = message{in: []string{file}}
				}
			}
		}
		for _, m := range cardText.FindAllStringSubmatch(string(source), -1) {
			found[m[1]+m[2]+m[3]] = message{in: []string{file}}
		}
	}
	for _, kind := range []assign.Kind{assign.LogInFailed, assign.Forbidden, assign.Unavailable} { // of oidc's failures
		found[assign.TitleOf(kind)] = message{in: []string{"problem.go"}}
	}
	if len(found) < 20 {
		t.Fatalf("the pages beside the page have %d texts", len(found))
	}
	return found
}

var (
	entry   = regexp.MustCompile(`(?m)^  '((?:[^'\\]|\\.)*)': (?:'((?:[^'\\]|\\.)*)'|\{ (.*) \}),$`)
	form    = regexp.MustCompile(`(\w+): '((?:[^'\\]|\\.)*)'`)
	holes   = regexp.MustCompile(`\{\d\}`)
	letters = regexp.MustCompile(`\p{L}{2}`)
)

// Each language has all texts of the page, in the file of the part that uses them, and no others. What stands in for values is the same.
func TestLanguages(t *testing.T) {
	t.Parallel()
	want := wanted(t)
	list := string(theSite().files["lang.js"].plain)
	for lang := range languages(t) {
		for _, part := range slices.Sorted(maps.Keys(want)) {
			file := theSite().files["lang/"+lang+"/"+part+".js"]
			if file == nil {
				t.Errorf("%s has no texts of %s", lang, part)
				continue
			}
			if parts := regexp.MustCompile(`(?m)^  ` + lang + `: \[(.*)\],$`).FindString(list); !strings.Contains(parts, "'"+part+"'") {
				t.Errorf("lang.js does not know that %s has texts of %s", lang, part)
			}
			has := map[string]bool{}
			for _, m := range entry.FindAllStringSubmatch(string(file.plain), -1) {
				key, text, forms := unescaped(m[1]), unescaped(m[2]), form.FindAllStringSubmatch(m[3], -1)
				message, used := want[part][key]
				switch {
				case has[key]:
					t.Errorf("%s, %s: twice: %q", lang, part, key)
				case !used:
					t.Errorf("%s, %s: not used there: %q", lang, part, key)
				case message.plural != (len(forms) > 0):
					t.Errorf("%s, %s: a text that depends on a number has forms, and no other has: %q", lang, part, key)
				case message.plural && !strings.Contains(m[3], "other: "):
					t.Errorf("%s, %s: without the form other: %q", lang, part, key)
				case !message.plural && !agree(key, text):
					t.Errorf("%s, %s: other values: %q: %q", lang, part, key, text)
				}
				for _, f := range forms {
					if of := map[bool]string{true: message.one, false: key}[f[1] == "one"]; !agree(of, unescaped(f[2])) {
						t.Errorf("%s, %s: other values: %q: %q", lang, part, of, f[2])
					}
				}
				has[key] = true
			}
			for key, message := range want[part] {
				if !has[key] {
					t.Errorf("%s, %s: missing: %q of %v", lang, part, key, message.in)
				}
			}
		}
	}
}

// languages are those that have files; en-XA makes its texts itself.
func languages(t *testing.T) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	dirs, err := fs.ReadDir(static, "static/lang")
	for _, dir := range dirs {
		if dir.Name() != "en-XA" {
			found[dir.Name()] = true
		}
	}
	if err != nil || !found["de"] {
		t.Fatalf("languages: %v, %v", found, err)
	}
	return found
}

// agree reports whether two texts have the same values in them, in any order.
func agree(a, b string) bool {
	return slices.Equal(slices.Sorted(slices.Values(holes.FindAllString(a, -1))), slices.Sorted(slices.Values(holes.FindAllString(b, -1)))) && strings.TrimSpace(b) != ""
}

// attributes that people see or hear.
var spoken = regexp.MustCompile(`\b(?:aria-label|aria-valuetext|title|placeholder|alt|data-label)="([^"]*)"`)

// visible are the texts of markup, of which an expression is a NUL: between its tags, and in some attributes.
func visible(parts []string) (found []string) {
	markup := strings.Join(parts, "\x00")
	for _, m := range spoken.FindAllStringSubmatch(markup, -1) {
		found = append(found, m[1])
	}
	for _, skip := range []string{"head", "noscript", "code", "template"} {
		markup = regexp.MustCompile(`(?s)<`+skip+`\b.*?</`+skip+`>`).ReplaceAllString(markup, "<x>")
	}
	markup = regexp.MustCompile(`(?s)<p id="not-loaded".*?</p>|<a class="brand".*?</a>`).ReplaceAllString(markup, "<x>")
	for _, text := range strings.FieldsFunc(htmlTag.ReplaceAllString(markup, "\x00"), func(r rune) bool { return r == 0 }) {
		if text = strings.TrimSpace(text); letters.MatchString(regexp.MustCompile(`&\w+;`).ReplaceAllString(text, "")) {
			found = append(found, text)
		}
	}
	return found
}

var (
	// sentence is what people read, unlike a selector or a key.
	sentence = regexp.MustCompile(`\p{L}{2}[,.;:]? [\p{L}\x00]|\x00 \p{L}{2}|^\p{Lu}\p{Ll}+\b|…`)
	// code is before literals that nobody reads.
	code = regexp.MustCompile(`(?:[!=]== |\bcase |\bfrom |\bimport |\bimport\(|\w(?:\?\.)?\[|(?:querySelector|closest|matchMedia)\(|\bclass(?:Name)?[=:] ?(?:\$\{)?)$`)
	// ours are parts of literals that look like text and are none, by module.
	ours = map[string][]string{
		"approve.js": {"Content-Type"}, "screen.js": {"Content-Type"},
		"getwork.js": {""}, // a library for other programs: it is in English
		"leave.js":   {"getwork draft: "}, "page.js": {"another session"}, "session.js": {"English", "Deutsch"}, "words.js": {"\x00 \x00"},
		"keys.js":             {"input:not(", "\x00 \x00"},
		"views/desk.js":       {".outcomes", "#\x00 "},
		"views/desk/sheet.js": {"\x00 \x00", "Escape"}, "views/desk/bell.js": {"sans-serif"}, "views/desk/tray.js": {"Arrow", "Enter"}, "views/desk/coming.js": {"Escape"},
		"views/desk/keys.js":    {"Arrow", "Enter", "Escape", ".choices-of", ".outcomes", "#\x00 "},
		"views/items/answer.js": {"paper answer", "tag old"}, "views/users/screen.js": {"ask account"}, "views/wall.js": {"Escape"},
		"views/wall/ticker.js":      {"run \x00", "paused \x00", "held \x00"},
		"views/account/sessions.js": {"Edg", "Opera", "Firefox", "Chrom", "Safari", "Android", "Windows", "Mac OS", "CrOS", "Linux"},
		"views/account/tokens.js":   {"gw_"},
		"views/limits.js":           {"getwork draft: "},
		"views/tasks/editor.js":     {"sql-wrong"}, "views/tasks/sql.js": {"all analyse"}, "views/desk/focus.js": {"input, "}, "views/tasks/fields.js": {"-help "}, "views/tasks/form.js": {"getwork draft: "},
		"views/tasks/queries.js": {"-help "}, "views/tasks/preview.js": {"given up"}, "views/tasks/compare.js": {"given up"}, "views/tasks/tables.js": {"select", " as item"},
		"views/tasks/plan.js": {"WindowAgg", "Sort", "Cond", "Filter", "Group Key", "Presorted Key", "Subplan Name", "Index Name"}, // PostgreSQL's
	}
)

// Every text that people see stands in t`…` or plural(…): markup has none of its own, and neither do strings.
func TestTextsAreInTables(t *testing.T) {
	t.Parallel()
	for name, all := range modules(t) {
		for _, l := range all {
			text := strings.Join(l.parts, "\x00")
			switch {
			case l.tag == "t", l.plain && (pluralBefore.MatchString(l.before) || pluralAfter.MatchString(l.before)):
			case l.tag == "html" || l.tag == "svg":
				for _, text := range visible(l.parts) {
					if !slices.Contains(ours[name], text) {
						t.Errorf("%s:%d: markup with a text of its own: %q", name, l.line, text)
					}
				}
			case sentence.MatchString(text) && !code.MatchString(l.before) && !slices.ContainsFunc(ours[name], func(part string) bool { return strings.Contains(text, part) }):
				t.Errorf("%s:%d: a text outside of the tables: %q", name, l.line, text)
			}
		}
	}
}

// What these tests would not let pass.
func TestTextsOutsideOfTablesAreFound(t *testing.T) {
	t.Parallel()
	for text, markup := range map[string]bool{"<p>Loose</p>": true, "<p title=\"Loose\"></p>": true, "a \x00 of": false, "Loose": false, "one more": false} {
		if markup && len(visible(strings.Split(text, "\x00"))) == 0 || !markup && !sentence.MatchString(text) {
			t.Errorf("not found: %q", text)
		}
	}
	for src, want := range map[string]string{"t`You hold ${n} of ${f(`x ${y}`)}.`": "You hold {0} of {1}.", "a = /['`]/.test(b) ? t`No ${x}` : ''": "No {0}"} {
		if found := messages(literals(src)); len(found) != 1 || found[want].in != nil {
			t.Errorf("%s: %v", src, found)
		}
	}
	if found := messages(literals("plural(a.b, '{0} item', '{0} items', x)")); fmt.Sprint(found) != "map[{0} items:{true {0} item []}]" {
		t.Errorf("plural: %v", found)
	}
}
