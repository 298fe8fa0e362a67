package bench

import (
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

	"getwork/assign/pg"
	"getwork/cmd/internal/bench/stage"
	"getwork/cmd/internal/node"
	"getwork/schema/postgres"
)

// errNoPgbench means that limits measured by pgbench are left out.
var errNoPgbench = errors.New("there is no pgbench on this machine to measure the limit with: it comes with PostgreSQL's server or contrib package")

// errNothingDone means that the machine was too busy for even one of pgbench's transactions.
var errNothingDone = errors.New("pgbench finished no transaction in its time; measure for longer, or on a machine with less to do")

var tpsPattern = regexp.MustCompile(`(?m)^tps = ([0-9.]+)`)

// pgbench lets clients repeat a script for a while, and returns the number of transactions per second.
func pgbench(ctx context.Context, e *stage.Env, script string, clients int, lasts time.Duration) (float64, error) {
	program := "pgbench"
	if b, err := postgres.Find(); err == nil {
		if _, err := os.Stat(filepath.Join(b.Dir, program)); err == nil {
			program = filepath.Join(b.Dir, program)
		}
	}
	config, err := pg.ParseConn(e.DatabaseURL)
	if err != nil {
		return 0, err
	}
	cmd := exec.CommandContext(ctx, program, "-n", "-M", "prepared", "-f", "-", "-c", strconv.Itoa(clients), "-j", strconv.Itoa(min(clients, 2)),
		"-T", strconv.Itoa(max(1, int(lasts.Seconds()))), forLibpq(e.DatabaseURL))
	cmd.Stdin = strings.NewReader(script)
	// As in getwork's own connections, because plans are made while the tables are empty.
	cmd.Env = append(os.Environ(), "PGOPTIONS=-c enable_seqscan=off")
	if config.Password != "" {
		cmd.Env = append(cmd.Env, "PGPASSWORD="+config.Password)
	}
	cmd.SysProcAttr = node.Attributes()
	out, err := cmd.CombinedOutput()
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return 0, errNoPgbench
	case err != nil:
		return 0, fmt.Errorf("pgbench: %w: %s", err, strings.TrimSpace(string(out)))
	}
	found := tpsPattern.FindSubmatch(out)
	switch {
	case strings.Contains(string(out), "actually processed: 0\n"):
		return 0, errNothingDone
	case found == nil:
		return 0, fmt.Errorf("pgbench printed no tps: %s", out)
	}
	return strconv.ParseFloat(string(found[1]), 64)
}

// A password follows the user in a URL, or is among a URL's parameters, or among names and values.
var (
	passwordOfUser = regexp.MustCompile(`^(\w+://[^:@/]*):[^@/]*@`)
	notInURL       = regexp.MustCompile(`^(password|` + ofPgx + `)=`)
	notInWords     = regexp.MustCompile(`(?i)\b(password|` + ofPgx + `)\s*=\s*('(?:[^'\\]|\\.)*'|\S+)`)
)

// ofPgx are the parameters that a node's URL may have, and that libpq refuses.
const ofPgx = `pool_\w+|default_query_exec_mode|statement_cache_capacity|description_cache_capacity`

// forLibpq returns a database's URL for PostgreSQL's own programs. It has no password, since everybody on the machine
// can see a program's arguments.
func forLibpq(database string) string {
	if !strings.Contains(database, "://") {
		return notInWords.ReplaceAllString(database, "")
	}
	address, parameters, _ := strings.Cut(passwordOfUser.ReplaceAllString(database, "$1@"), "?")
	kept := slices.DeleteFunc(strings.Split(parameters, "&"), func(one string) bool { return one == "" || notInURL.MatchString(one) })
	if len(kept) == 0 {
		return address
	}
	return address + "?" + strings.Join(kept, "&")
}
