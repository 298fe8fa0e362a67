package torture

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// What a run finds in its folder of a former run goes, and so do the programs that were built for it; other files stay.
func TestFolderHasOneRun(t *testing.T) {
	t.Parallel()
	o := Options{Out: t.TempDir()}
	fill := func(names ...string) (err error) {
		for _, name := range names {
			err = errors.Join(err, os.WriteFile(filepath.Join(o.Out, name), []byte("former"), 0o600))
		}
		return err
	}
	left := func() (names []string) {
		all, err := os.ReadDir(o.Out)
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range all {
			names = append(names, one.Name())
		}
		return names
	}
	if err := fill("node-0.log", "node-11.log", "history.jsonl", "report.txt", "mine.log"); err != nil {
		t.Fatal(err)
	}
	dir, err := logDir(o)
	if err != nil || !slices.Equal(left(), []string{"mine.log"}) {
		t.Errorf("at the start: %v, %v", left(), err)
	}
	if err := errors.Join(fill("getwork", "getwork-newer", "overlay.json", "upgraded.sql"), removePrograms(dir, o)); err != nil || !slices.Equal(left(), []string{"mine.log"}) {
		t.Errorf("at the end: %v, %v", left(), err)
	}
}
