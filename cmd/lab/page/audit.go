package page

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

//go:embed testdata/axe/axe.min.js
var axeSource string

// axeRun returns axe's violations outside of frames. It includes small targets, which axe does not check by default.
const axeRun = `axe.run(document, { iframes: false, resultTypes: ['violations'], rules: { 'target-size': { enabled: true } } }).then(
	({ violations }) => JSON.stringify(violations))`

// finding is a rule of axe's, and the places where the page breaks it.
type finding struct {
	ID, Impact, Help string
	Nodes            []struct {
		HTML           string
		Target         []any
		FailureSummary string
	}
}

func (f finding) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s (%s): %s", f.ID, f.Impact, f.Help)
	for _, n := range f.Nodes {
		fmt.Fprintf(&b, "\n  %v\n  %s\n  %s", n.Target, n.HTML, strings.ReplaceAll(n.FailureSummary, "\n", "\n  "))
	}
	return b.String()
}

// Axe returns axe's findings on the page, as JSON.
func (b *Browser) Axe() string {
	b.T.Helper()
	if b.Eval(`typeof axe`) == "undefined" {
		b.Eval(axeSource + "; ''") // by DevTools, because the page's policy would not allow a script element
	}
	text, err := Run(b, chromedp.Evaluate[string](axeRun, chromedp.EvalAwaitPromise))
	if err != nil {
		b.T.Fatal("axe: ", err)
	}
	return text
}

// Audit runs axe on the page. Serious and critical findings fail the test, others are logged.
func (b *Browser) Audit(t *testing.T) {
	t.Helper()
	judge(t, b.Axe())
}

// judge reports axe's findings.
func judge(t *testing.T, text string) {
	t.Helper()
	var found []finding
	if err := json.Unmarshal([]byte(text), &found); err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		if f.Impact == "serious" || f.Impact == "critical" {
			t.Error("axe: ", f)
		} else {
			t.Log("axe: ", f)
		}
	}
}

// Axe returns axe's findings on the page, as JSON.
func (f *Firefox) Axe() string {
	f.T.Helper()
	if f.Eval(`typeof axe`) == "undefined" {
		f.Execute(axeSource)
	}
	return f.Eval(axeRun)
}

// Audit runs axe on the page, as [Browser.Audit] does.
func (f *Firefox) Audit(t *testing.T) {
	t.Helper()
	judge(t, f.Axe())
}
