package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// OldestMajor is the first major version that has what getwork needs: client_connection_check_interval came
// with 14.
const OldestMajor = 14

// ErrNotInstalled means that no usable PostgreSQL was found on this machine. Its text is one line for users, and
// says how to install one.
var ErrNotInstalled = errors.New("no PostgreSQL 14 or newer found on this machine: install it " +
	"(Debian, Ubuntu: apt-get install postgresql; Fedora: dnf install postgresql-server; " +
	"macOS: brew install postgresql@17), or give the URL of a running one")

// Binaries are the programs of one installed PostgreSQL.
type Binaries struct {
	Dir   string // the folder that holds initdb and postgres
	Major int    // 15
}

func (b Binaries) initdb() string   { return filepath.Join(b.Dir, "initdb") }
func (b Binaries) postgres() string { return filepath.Join(b.Dir, "postgres") }

// folders are where packages put the programs, which are seldom in PATH: Debian, Red Hat, SUSE, Alpine,
// Homebrew on Apple and Intel processors, Postgres.app.
var folders = []string{
	"/usr/lib/postgresql/*/bin",
	"/usr/pgsql-*/bin",
	"/usr/lib/postgresql*/bin",
	"/usr/libexec/postgresql*",
	"/opt/homebrew/opt/postgresql@*/bin",
	"/opt/homebrew/bin",
	"/usr/local/opt/postgresql@*/bin",
	"/usr/local/bin",
	"/usr/local/pgsql/bin",
	"/Applications/Postgres.app/Contents/Versions/*/bin",
}

// Find returns the PostgreSQL in PATH, which somebody has chosen. Without one it searches where pg_config says and in the
// folders that packages use, and returns the newest major version. It returns [ErrNotInstalled] if there is none.
func Find() (Binaries, error) {
	found := inspect(inPath())
	if len(found) == 0 {
		found = inspect(candidates())
	}
	if len(found) == 0 {
		return Binaries{}, ErrNotInstalled
	}
	return found[0], nil
}

// find returns the programs that the configuration names, or those of [Find].
func (c Config) find() (Binaries, error) {
	if c.Programs == "" {
		return Find()
	}
	found := inspect([]string{c.Programs})
	if len(found) == 0 {
		return Binaries{}, fmt.Errorf("%s: %w", c.Programs, ErrNotInstalled)
	}
	return found[0], nil
}

// findMajor is Find for existing data, which only the major version that made it can read.
func findMajor(major int) (Binaries, error) {
	for _, b := range inspect(candidates()) {
		if b.Major == major {
			return b, nil
		}
	}
	return Binaries{}, fmt.Errorf("PostgreSQL %d made this data and is no longer installed", major)
}

// inPath are the folders in PATH that come first for PostgreSQL's programs.
func inPath() (dirs []string) {
	for _, name := range []string{"postgres", "initdb"} {
		if path, err := exec.LookPath(name); err == nil {
			dirs = append(dirs, filepath.Dir(path))
		}
	}
	return dirs
}

// candidates are all folders to inspect.
func candidates() []string {
	dirs := inPath()
	if out, err := output("pg_config", "--bindir"); err == nil {
		dirs = append(dirs, strings.TrimSpace(out))
	}
	for _, pattern := range folders {
		matches, _ := filepath.Glob(pattern) // fails only on a malformed pattern
		dirs = append(dirs, matches...)
	}
	return dirs
}

// inspect returns the usable installations in the folders, the newest first.
func inspect(dirs []string) []Binaries {
	var found []Binaries
	seen := make(map[string]bool)
	for _, dir := range dirs {
		if real, err := filepath.EvalSymlinks(dir); err == nil {
			// Programs find their libraries beside themselves, so a folder of links is as good as what
			// it points to, and the same installation isn't asked twice.
			if seen[real] {
				continue
			}
			seen[real] = true
		}
		b := Binaries{Dir: dir}
		if !executable(b.initdb()) || !executable(b.postgres()) {
			continue
		}
		out, err := output(b.postgres(), "--version")
		if err != nil {
			continue
		}
		if b.Major = parseMajor(out); b.Major >= OldestMajor {
			found = append(found, b)
		}
	}
	slices.SortStableFunc(found, func(a, b Binaries) int { return b.Major - a.Major })
	return found
}

var versionPattern = regexp.MustCompile(`PostgreSQL\)? (\d+)`)

// parseMajor reads "postgres (PostgreSQL) 15.14 (Debian …)", also 18beta1; it returns 0 for anything else.
func parseMajor(version string) int {
	m := versionPattern.FindStringSubmatch(version)
	if m == nil {
		return 0
	}
	major, err := strconv.Atoi(m[1])
	if err != nil {
		return 0
	}
	return major
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0
}

// output runs a program that ends at once, and returns its output.
func output(name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdout = &out
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	return out.String(), err
}
