package serve

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign/audit"
	"getwork/cmd/internal/command"
	"getwork/schema"
)

// Audit has the commands that check and export the audit. Like [Migrate] they need the database, and no node.
type Audit struct {
	Verify auditVerifyCmd `cmd:"" help:"Check that nobody has changed the audit. Exit status 1 if somebody has; each finding is a line."`
	Export auditExportCmd `cmd:"" help:"Print the audit as JSON lines. With --cut, the only way to remove old rows."`
}

// withAudit is with for commands that read the audit: the tables must be those that this program knows.
func (t Database) withAudit(ctx context.Context, s *command.Streams, f func(ctx context.Context, conn *pgx.Conn, w *audit.Writer) error) error {
	return t.with(ctx, func(ctx context.Context, conn *pgx.Conn, name schema.Name) error {
		if err := schema.Check(ctx, conn, name); err != nil {
			return err
		}
		log := slog.New(slog.NewTextHandler(s.Errs, nil))
		return f(audit.WithActor(ctx, audit.Actor{By: "direct"}), conn, &audit.Writer{Node: "direct", SQL: name.SQL, Log: log, DB: conn})
	})
}

type auditVerifyCmd struct {
	Database `embed:""`
	Log      []string `help:"The nodes' log, as text or JSON, kept off the database's machine. Without it, verify can't find rows that were cut off at the end, or a chain that was rewritten. May be repeated; - is standard input." placeholder:"FILE" sep:"none" complete:"file"`
}

func (c auditVerifyCmd) Run(ctx context.Context, s *command.Streams) error {
	log, err := c.readLog()
	if err != nil {
		return err
	}
	return c.withAudit(ctx, s, func(ctx context.Context, conn *pgx.Conn, w *audit.Writer) error {
		findings := 0
		checked, err := audit.Verify(ctx, conn, w.SQL, log, func(f audit.Finding) {
			findings++
			_, _ = fmt.Fprintln(s.Out, f)
		})
		if err != nil {
			return err
		}
		if checked.Unlogged > 0 {
			_, _ = fmt.Fprintf(s.Errs, "%d of the rows between the log's first and last are not in the log, the first is row %d: a node that died right after the commit, another program than a node, or a log that is not complete\n",
				checked.Unlogged, checked.FirstUnlogged)
		}
		if findings > 0 {
			return fmt.Errorf("the audit is not as it was written: %s, see above", count(findings, "finding"))
		}
		return tellChecked(s.Out, checked, log != nil)
	})
}

// readLog reads all logs as one; nil: there is none.
func (c auditVerifyCmd) readLog() (*audit.Log, error) {
	if len(c.Log) == 0 {
		return nil, nil
	}
	var all []io.Reader
	for _, name := range c.Log {
		file := os.Stdin
		if name != "-" {
			var err error
			if file, err = os.Open(name); err != nil {
				return nil, command.Usage("--log: %v", err)
			}
			defer file.Close()
		}
		all = append(all, file, strings.NewReader("\n"))
	}
	log, err := audit.ReadLog(io.MultiReader(all...))
	if err != nil {
		return nil, command.Usage("--log: %v", err)
	}
	if log.Lines == 0 {
		return nil, command.Usage(`--log: no line of it is about the audit; is it the log of the nodes, with the lines msg=audit or "msg":"audit", which they write at level info?`)
	}
	return log, nil
}

func tellChecked(out io.Writer, c audit.Checked, logged bool) error {
	if c.Rows == 0 {
		_, err := fmt.Fprintln(out, "the audit is empty, as it should be")
		return err
	}
	text := fmt.Sprintf("%s, %d to %d, as they were written", count(int(c.Rows), "row"), c.First, c.Last)
	if logged {
		text += fmt.Sprintf("; %d of them are in the log", c.Logged)
	}
	_, err := fmt.Fprintf(out, "%s; the last has the hash %s\n", text, c.Hash)
	return err
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// moment is a time or a day.
type moment struct{ time.Time }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (m *moment) UnmarshalText(text []byte) (err error) {
	for _, form := range []string{time.RFC3339, time.DateOnly} {
		if m.Time, err = time.Parse(form, string(text)); err == nil {
			return nil
		}
	}
	return fmt.Errorf("%q is no time: write it as 2026-01-31 or 2026-01-31T18:00:00Z", text)
}

type auditExportCmd struct {
	Database `embed:""`
	Cut      moment `help:"Export the rows before this time, such as 2026-01-31T18:00:00Z or 2026-01-31, which is midnight UTC, and remove them. A row says so, and getwork audit verify accepts it. The login must own the tables." placeholder:"TIME"`
}

func (c auditExportCmd) Run(ctx context.Context, s *command.Streams) error {
	cuts := !c.Cut.IsZero()
	if cuts {
		if c.Cut.After(time.Now()) {
			return command.Usage("--cut must be a time in the past, not %s", c.Cut.Format(time.RFC3339))
		}
		if file, ok := s.RawOut.(*os.File); ok && !isRegular(file) {
			return command.Usage("--cut removes what it exports: redirect the output into a file, because a terminal or a pipe can't tell whether it was kept")
		}
	}
	return c.withAudit(ctx, s, func(ctx context.Context, conn *pgx.Conn, w *audit.Writer) error {
		if cuts {
			if err := whole(ctx, conn, w); err != nil {
				return err
			}
		}
		exported, err := c.export(ctx, s, conn, w)
		if err != nil || !cuts {
			return err
		}
		if exported.Rows == 0 {
			_, err = fmt.Fprintf(s.Errs, "no row is older than %s; nothing was cut\n", c.Cut.Format(time.RFC3339))
			return err
		}
		n, err := w.Cut(ctx, exported, c.Cut.Time)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(s.Errs, "%s, %d to %d, exported and removed; row %d says so\n", count(int(exported.Rows), "row"), exported.From, exported.To, n)
		return err
	})
}

func isRegular(file *os.File) bool {
	info, err := file.Stat()
	return err == nil && info.Mode().IsRegular()
}

// whole returns an error if something is wrong with the audit. To cut it would remove the evidence.
func whole(ctx context.Context, conn *pgx.Conn, w *audit.Writer) error {
	findings := 0
	if _, err := audit.Verify(ctx, conn, w.SQL, nil, func(audit.Finding) { findings++ }); err != nil {
		return err
	}
	if findings > 0 {
		return errors.New("the audit is not as it was written, and cutting it would remove the evidence; see `getwork audit verify`, and export it without --cut")
	}
	return nil
}

// export prints the rows. When it returns they are on the disk, if the output is a file.
func (c auditExportCmd) export(ctx context.Context, s *command.Streams, conn *pgx.Conn, w *audit.Writer) (audit.Exported, error) {
	out := bufio.NewWriter(s.Out)
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false) // the hash is of the unescaped text
	exported, err := audit.Export(ctx, conn, w.SQL, c.Cut.Time, func(r audit.Row) error { return encoder.Encode(r) })
	if err == nil {
		err = out.Flush()
	}
	if file, ok := s.RawOut.(*os.File); ok && err == nil {
		if err = file.Sync(); errors.Is(err, syscall.EINVAL) || errors.Is(err, errors.ErrUnsupported) {
			err = nil // a pipe or a terminal
		}
	}
	return exported, err
}
