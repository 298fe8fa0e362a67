package web

import (
	"io/fs"
	"maps"
	"regexp"
	"strings"
	"testing"

	guides "getwork/docs"
)

// Each guide is a page that is listed, and obeys the policy. What it links on the node is there: pages, their parts, pictures.
func TestGuides(t *testing.T) {
	t.Parallel()
	n := start(t, stationOptions{})
	names, err := fs.Glob(guides.Files, "*.md")
	if err != nil || len(names) < 20 {
		t.Fatal(names, err)
	}
	pages := map[string]string{"/docs": n.file(t, "GET", "/docs").want(200).body}
	for _, name := range names {
		address := "/docs/" + strings.ToLower(strings.TrimSuffix(name, ".md"))
		pages[address] = n.file(t, "GET", address).want(200).wantHeader("Content-Type", "text/html; charset=utf-8").body
		if !strings.Contains(pages["/docs"], `href="`+address+`"`) {
			t.Errorf("%s is not listed", address)
		}
	}
	link := regexp.MustCompile(`(?:href|src)="([^"]*)"`)
	for address, page := range maps.Clone(pages) {
		if regexp.MustCompile(`<style|<[a-z][^>]*\s(style|on[a-z]+)=|<script[^>]*>[^<]|raw HTML omitted`).MatchString(page) {
			t.Errorf("%s has a script, a style or raw HTML in it", address)
		}
		for _, match := range link.FindAllStringSubmatch(page, -1) {
			to, part, _ := strings.Cut(match[1], "#")
			if strings.HasPrefix(to, "https://") {
				continue
			}
			if to == "" {
				to = address
			}
			there, ok := pages[to]
			if !ok {
				pages[to] = n.file(t, "GET", to).want(200).body // a picture, a style sheet
			}
			if part != "" && to != "/docs" && !strings.Contains(there, `id="`+part+`"`) {
				t.Errorf("%s links %s, whose page has no such part", address, match[1])
			}
		}
	}
}

// A search finds the parts with all words, titles first, and says so when there is none. What is searched for is text.
func TestGuidesAreSearched(t *testing.T) {
	t.Parallel()
	n := start(t, stationOptions{})
	if page := n.file(t, "GET", "/docs?q=fresh_for+SHELF").want(200).body; !strings.Contains(page, `<a href="/docs/tasks`) || !strings.Contains(page, "the shelf") {
		t.Error("fresh_for is not found in the guide to settings")
	}
	if page := n.file(t, "GET", "/docs?q=%3Cb%3Ezebra").want(200).body; !strings.Contains(page, "Nothing has “&lt;b&gt;zebra” in it") {
		t.Error("it does not say that nothing is found")
	}
}
