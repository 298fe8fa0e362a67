package torture_test

import (
	"encoding/json"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"getwork/cmd/lab"
)

// edit changes one text of the source. A build gets it by an overlay; the source itself stays as it is.
type edit struct {
	tree     string // folder of the repository: exactly one file below it has the text, wherever that file moves
	old, new string
}

// overlay writes the changed files, and the file for the go command's -overlay that lists them.
func overlay(t *testing.T, edits ...edit) string {
	t.Helper()
	original, err := source()
	if err != nil {
		t.Fatal(err)
	}
	changed := map[string]string{}
	for _, e := range edits {
		file, text := e.find(t, original, changed)
		changed[file] = strings.Replace(text, e.old, e.new, 1)
	}
	dir, replace := t.TempDir(), map[string]string{}
	for file, text := range changed {
		replace[file] = filepath.Join(dir, strings.ReplaceAll(strings.TrimPrefix(file, root), string(filepath.Separator), "-"))
		if err := os.WriteFile(replace[file], []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// find returns the only file that has the text, as earlier edits have left it.
func (e edit) find(t *testing.T, original, changed map[string]string) (file, text string) {
	t.Helper()
	n := 0
	for _, path := range slices.Sorted(maps.Keys(original)) {
		if !strings.HasPrefix(path, filepath.Join(root, e.tree)+string(filepath.Separator)) {
			continue
		}
		now, ok := changed[path]
		if !ok {
			now = original[path]
		}
		if has := strings.Count(now, e.old); has > 0 {
			file, text, n = path, now, n+has
		}
	}
	if n != 1 {
		t.Fatalf("below %s this text occurs %d times, want once; change the table if the code has changed:\n%s", e.tree, n, e.old)
	}
	return file, text
}

// root is the repository's folder.
var root = lab.Path("")

// source returns the sources that edits change, by path: Go files without tests, and migrations.
var source = sync.OnceValues(func() (map[string]string, error) {
	files := map[string]string{}
	for _, tree := range []string{"assign", "cmd/internal/doctor", "cmd/internal/serve", "notify", "schema", "web", "ws"} {
		err := filepath.WalkDir(filepath.Join(root, tree), func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || strings.HasSuffix(path, "_test.go") || !slices.Contains([]string{".go", ".sql"}, filepath.Ext(path)) {
				return err
			}
			b, err := os.ReadFile(path)
			files[path] = string(b)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return files, nil
})

// compile compiles the packages that the edits change, and what these import.
func compile(t *testing.T, edits []edit) {
	t.Helper()
	path := overlay(t, edits...)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var changed struct{ Replace map[string]string }
	if err := json.Unmarshal(b, &changed); err != nil {
		t.Fatal(err)
	}
	args := []string{"build", "-overlay", path}
	for file := range changed.Replace {
		if folder := filepath.Dir(file); filepath.Ext(file) == ".go" && !slices.Contains(args, folder) {
			args = append(args, folder)
		}
	}
	build := exec.CommandContext(t.Context(), "go", args...)
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
