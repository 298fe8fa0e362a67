package web

import (
	"bytes"
	"cmp"
	"html/template"
	"io/fs"
	"maps"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/gorilla/mux"
	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	extensions "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/renderer"
	"github.com/yuin/goldmark/renderer/html"
	gm "github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"

	"getwork/assign"
	guides "getwork/docs"
)

// shelves are the groups in which guides are listed, by the names of their files. Those that none names come last.
var shelves = []shelf{
	{title: "Start here", names: []string{"readme", "for-workers", "for-managers", "first-task", "features", "faq"}},
	{title: "Recipes", names: []string{"recipes", "ranking-query", "situations", "webhooks", "watch"}},
	{title: "Look it up", names: []string{"api", "client", "tasks", "configuration", "log-in", "glossary"}},
	{title: "Run it", names: []string{"install", "upgrade", "runbook", "proxy", "sizing", "managed", "three-nodes", "patroni", "durable", "security"}},
	{title: "How it works"},
}

type shelf struct {
	title string
	names []string
}

// guide is a page of the guides.
type guide struct {
	Name, Title string
	Body        template.HTML
	Parts       []part
}

// part is a guide's part under a heading; the first has none.
type part struct {
	ID, Title string
	Level     int
	text      string
}

// library are all guides, by the address's last part.
type library struct {
	guides map[string]*guide
	groups []group
}

type group struct {
	Title  string
	Guides []*guide
}

// theLibrary is made on first use.
var theLibrary = sync.OnceValue(func() *library {
	l := &library{guides: map[string]*guide{}}
	names, err := fs.Glob(guides.Files, "*.md")
	if err != nil {
		panic(err) // the pattern is wrong
	}
	known := map[string]bool{}
	for _, file := range names {
		source, err := guides.Files.ReadFile(file)
		if err != nil {
			panic(err) // the build left it out
		}
		name := strings.ToLower(strings.TrimSuffix(file, ".md"))
		l.guides[name] = newGuide(name, source)
	}
	for i, s := range shelves {
		g := group{Title: s.title}
		of := s.names
		if i == len(shelves)-1 {
			of = slices.SortedFunc(maps.Keys(l.guides), func(a, b string) int { return cmp.Compare(l.guides[a].Title, l.guides[b].Title) })
		}
		for _, name := range of {
			if one := l.guides[name]; one != nil && !known[name] {
				known[name] = true
				g.Guides = append(g.Guides, one)
			}
		}
		l.groups = append(l.groups, g)
	}
	return l
})

// markdown reads guides as GitHub does. Comments are left out, and nothing has a style of its own, which the policy would refuse.
var markdown = goldmark.New(
	goldmark.WithExtensions(extension.NewTable(extension.WithTableCellAlignMethod(extension.TableCellAlignAttribute)), extension.Linkify),
	goldmark.WithParserOptions(parser.WithAutoHeadingID(), parser.WithASTTransformers(util.Prioritized(links{}, 500))),
	goldmark.WithRendererOptions(renderer.WithNodeRenderers(util.Prioritized(wide{}, 100))),
)

func newGuide(name string, source []byte) *guide {
	g := &guide{Name: name, Title: name, Parts: []part{{}}}
	tree := markdown.Parser().Parse(gm.NewReader(source), parser.WithContext(parser.NewContext(parser.WithIDs(&anchors{}))))
	_ = ast.Walk(tree, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		last := &g.Parts[len(g.Parts)-1]
		switch n := n.(type) {
		case *ast.Heading:
			title := plainOf(n, source)
			if n.Level == 1 {
				g.Title = title
				return ast.WalkSkipChildren, nil
			}
			id, _ := n.AttributeString("id")
			written, _ := id.([]byte)
			g.Parts = append(g.Parts, part{ID: string(written), Title: title, Level: n.Level})
			return ast.WalkSkipChildren, nil
		case *ast.FencedCodeBlock, *ast.CodeBlock:
			last.text += " " + string(n.Lines().Value(source))
		case *ast.Text:
			last.text += string(n.Segment.Value(source))
			if n.SoftLineBreak() {
				last.text += " "
			}
		default:
			if n.Type() == ast.TypeBlock {
				last.text += " "
			}
		}
		return ast.WalkContinue, nil
	})
	var b bytes.Buffer
	if err := markdown.Renderer().Render(&b, source, tree); err != nil {
		panic(err) // a buffer takes everything
	}
	g.Body = template.HTML(b.String()) //nolint:gosec // it is made of the program's own files
	return g
}

// plainOf is a node's text without markup.
func plainOf(n ast.Node, source []byte) string {
	var b strings.Builder
	_ = ast.Walk(n, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if t, ok := n.(*ast.Text); ok && entering {
			b.Write(t.Segment.Value(source))
		}
		return ast.WalkContinue, nil
	})
	return b.String()
}

// anchors names headings as GitHub does, since guides link each other's headings.
type anchors struct{ used map[string]int }

func (a *anchors) Generate(value []byte, _ ast.NodeKind) []byte {
	var b strings.Builder
	for _, r := range strings.ToLower(strings.TrimSpace(string(value))) {
		switch {
		case r == ' ':
			b.WriteByte('-')
		case r == '-' || r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r > 0x7f && r != '’' && r != '…':
			b.WriteRune(r)
		}
	}
	if a.used == nil {
		a.used = map[string]int{}
	}
	id := b.String()
	n := a.used[id]
	a.used[id]++
	if n > 0 {
		id += "-" + strconv.Itoa(n)
	}
	return []byte(id)
}

func (a *anchors) Put([]byte) {}

// links leads from guide to guide on the node. What else the repository has isn't served, so such a link is its text alone.
type links struct{}

func (links) Transform(tree *ast.Document, _ gm.Reader, _ parser.Context) {
	var gone []*ast.Link
	var comments []ast.Node
	_ = ast.Walk(tree, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Link:
			to, part, _ := strings.Cut(string(n.Destination), "#")
			switch {
			case strings.Contains(to, ":") || to == "":
			case path.Ext(to) == ".md" && !strings.Contains(to, "/"):
				n.Destination = []byte("/docs/" + strings.ToLower(strings.TrimSuffix(to, ".md")))
				if part != "" {
					n.Destination = append(n.Destination, "#"+part...)
				}
			case !strings.HasPrefix(to, "/"):
				gone = append(gone, n)
			}
		case *ast.HTMLBlock:
			if n.HTMLBlockType == ast.HTMLBlockType2 {
				comments = append(comments, n)
			}
		case *ast.Image:
			if to := string(n.Destination); !strings.Contains(to, "/") {
				n.Destination = []byte("/docs/" + to)
			}
		}
		return ast.WalkContinue, nil
	})
	for _, n := range comments {
		n.Parent().RemoveChild(n.Parent(), n)
	}
	for _, n := range gone {
		parent := n.Parent()
		for child := n.FirstChild(); child != nil; {
			next := child.NextSibling()
			parent.InsertBefore(parent, n, child)
			child = next
		}
		parent.RemoveChild(parent, n)
	}
}

// wide draws what may be wider than a phone in a frame that scrolls.
type wide struct{}

func (wide) RegisterFuncs(r renderer.NodeRendererFuncRegisterer) {
	r.Register(extensions.KindTable, func(w util.BufWriter, _ []byte, _ ast.Node, entering bool) (ast.WalkStatus, error) {
		tag := "</tbody>\n</table></div>\n"
		if entering {
			tag = "<div class=\"scroll\" tabindex=\"0\"><table>\n"
		}
		_, err := w.WriteString(tag)
		return ast.WalkContinue, err
	})
	code := func(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		_, _ = w.WriteString("<div class=\"shell\"><pre tabindex=\"0\"><code>")
		html.DefaultWriter.RawWrite(w, n.Lines().Value(source))
		_, err := w.WriteString("</code></pre></div>\n")
		return ast.WalkSkipChildren, err
	}
	r.Register(ast.KindFencedCodeBlock, code)
	r.Register(ast.KindCodeBlock, code)
}

// found is a part of a guide with all words that were searched for.
type found struct {
	Guide *guide
	Part  part
	Text  string // around the first word
	rank  int
}

const (
	longest   = 200 // of what is searched for
	mostFound = 40
)

// search returns the parts with all words, those first whose titles have them.
func (l *library) search(query string) []found {
	words := strings.Fields(strings.ToLower(query[:min(len(query), longest)]))
	var all []found
	if len(words) == 0 {
		return nil
	}
	for _, g := range l.groups {
		for _, one := range g.Guides {
			for _, p := range one.Parts {
				title, body := strings.ToLower(one.Title+" "+p.Title), strings.ToLower(p.text)
				rank := 0
				for _, word := range words {
					switch {
					case strings.Contains(title, word):
						rank += 2
					case !strings.Contains(body, word):
						rank = -1000
					}
				}
				if rank >= 0 {
					all = append(all, found{one, p, around(p.text, words[0]), rank})
				}
			}
		}
	}
	slices.SortStableFunc(all, func(a, b found) int { return cmp.Compare(b.rank, a.rank) })
	return all[:min(len(all), mostFound)]
}

// around is the text about a word, or its beginning.
func around(body, word string) string {
	const before, after = 60, 160
	at := max(0, strings.Index(strings.ToLower(body), word))
	runes := []rune(body[min(at, len(body)):])
	lead := []rune(body[:min(at, len(body))])
	s := string(lead[max(0, len(lead)-before):]) + string(runes[:min(len(runes), after)])
	if len(lead) > before {
		s = "… " + s
	}
	if len(runes) > after {
		s += " …"
	}
	return strings.Join(strings.Fields(s), " ")
}

// guidePage is what the page of the guides is made of.
type guidePage struct {
	Static string // where the page's files are
	Groups []group
	Guide  *guide  // that is shown
	API    bool    // the description of the API is
	Query  string  // what was searched for
	Found  []found // and where that is
}

func (p guidePage) Title() string {
	switch {
	case p.Guide != nil:
		return p.Guide.Title
	case p.API:
		return "REST calls"
	}
	return "Search"
}

var guideTemplate = sync.OnceValue(func() *template.Template { return template.Must(template.ParseFS(docs, "docs/page.html")) })

func (p guidePage) asset() *asset {
	var b bytes.Buffer
	p.Static = "/static/" + theSite().version
	p.Groups = theLibrary().groups
	if err := guideTemplate().Execute(&b, p); err != nil {
		panic(err) // the template is wrong
	}
	return newAsset(kinds[".html"], b.Bytes())
}

// guides serves the guides of the folder docs/, and a search in them. They are public, as the description is.
func (s *server) guides(m *mux.Router) {
	shown := func(make func() *asset) http.Handler {
		made := sync.OnceValue(make)
		return document(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { made().serve(w, r, revalidate) }))
	}
	api := shown(func() *asset { return guidePage{API: true}.asset() })
	for _, address := range []string{"/docs", "/docs/"} {
		m.Handle(address, document(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if q := strings.TrimSpace(r.URL.Query().Get("q")); q != "" {
				guidePage{Query: q, Found: theLibrary().search(q)}.asset().serve(w, r, "no-store")
				return
			}
			api.ServeHTTP(w, r)
		}))).Methods("GET", "HEAD")
	}
	pictures, _ := fs.Glob(guides.Files, "*.png")
	for _, name := range pictures {
		content, err := guides.Files.ReadFile(name)
		if err != nil {
			panic(err) // the build left it out
		}
		m.Handle("/docs/"+name, newAsset("image/png", content).fresh()).Methods("GET", "HEAD")
	}
	pages := sync.OnceValue(func() map[string]http.Handler {
		all := map[string]http.Handler{}
		for name, g := range theLibrary().guides {
			all[name] = shown(func() *asset { return guidePage{Guide: g}.asset() })
		}
		return all
	})
	m.Handle("/docs/{guide}", s.handle(func(w http.ResponseWriter, r *http.Request) error {
		page := pages()[mux.Vars(r)["guide"]]
		if page == nil {
			return assign.Refuse(assign.NotFound, "there is no such guide")
		}
		page.ServeHTTP(w, r)
		return nil
	})).Methods("GET", "HEAD")
}
