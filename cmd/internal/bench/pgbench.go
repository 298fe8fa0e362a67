package bench

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/cmd/internal/node"
	"getwork/schema/postgres"
)

// errNoPgbench leaves out the limits that it would have measured.
var errNoPgbench = errors.New("there is no pgbench on this machine, which would measure the limit: it comes with PostgreSQL's server or contrib package")

func findPgbench() (string, error) {
	if b, err := postgres.Find(); err == nil {
		path := filepath.Join(b.Dir, "pgbench")
		if _, err := os.Stat(path); err == nil {
			return path, nil
		}
	}
	path, err := exec.LookPath("pgbench")
	if err != nil {
		return "", errNoPgbench
	}
	return path, nil
}

var tpsPattern = regexp.MustCompile(`(?m)^tps = ([0-9.]+)`)

// pgbench has clients repeat a script for a while, and returns how many transactions a second that were.
func (e *Env) pgbench(ctx context.Context, script string, clients int, lasts time.Duration) (float64, error) {
	program, err := findPgbench()
	if err != nil {
		return 0, err
	}
	dir, err := os.MkdirTemp("", "getwork-pgbench-")
	if err != nil {
		return 0, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	file := filepath.Join(dir, "script.sql")
	if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
		return 0, err
	}
	database, password, err := withoutPassword(e.DatabaseURL)
	if err != nil {
		return 0, err
	}
	cmd := exec.CommandContext(ctx, program, "-n", "-M", "prepared", "-f", file, "-c", strconv.Itoa(clients), "-j", strconv.Itoa(min(clients, 2)),
		"-T", strconv.Itoa(max(1, int(lasts.Seconds()))), database)
	// As getwork's own connections have it: plans are made while the tables are empty.
	cmd.Env = append(os.Environ(), "PGOPTIONS=-c enable_seqscan=off")
	if password != "" {
		cmd.Env = append(cmd.Env, "PGPASSWORD="+password)
	}
	cmd.SysProcAttr = node.Attributes()
	out, err := cmd.CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("pgbench: %w: %s", err, strings.TrimSpace(string(out)))
	}
	found := tpsPattern.FindSubmatch(out)
	if found == nil {
		return 0, fmt.Errorf("pgbench printed no tps: %s", out)
	}
	return strconv.ParseFloat(string(found[1]), 64)
}

var passwordPattern = regexp.MustCompile(`(?i)\bpassword\s*=\s*('(?:[^'\\]|\\.)*'|\S+)`)

// withoutPassword takes the password out of a database's URL, since everybody on the machine may see a program's
// arguments.
func withoutPassword(database string) (without, password string, err error) {
	config, err := pgx.ParseConfig(database)
	if err != nil {
		return "", "", err
	}
	u, err := url.Parse(database)
	if err != nil || u.Scheme == "" {
		return passwordPattern.ReplaceAllString(database, ""), config.Password, nil
	}
	if u.User != nil {
		u.User = url.User(u.User.Username())
	}
	query := u.Query()
	if query.Has("password") {
		query.Del("password")
		u.RawQuery = strings.ReplaceAll(query.Encode(), "+", "%20")
	}
	return u.String(), config.Password, nil
}
