package schema

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// outsideTx marks a way of a migration, up or down, whose statements can't be in a transaction, as create index concurrently
// can't. It is a line, as tern writes it. Each statement there ends with a semicolon at a line's end, and does nothing if it is
// repeated: the way may be killed anywhere, and begins again with its first statement. An index that is there and valid is not
// built again. One that a killed build left behind is not valid, costs every write, and serves no read; it is dropped first.
const outsideTx = "---- tern: disable-tx ----"

// concurrentIndex finds the name of the index that a statement builds or drops.
var concurrentIndex = regexp.MustCompile(`(?i)^(create (?:unique )?|drop )index concurrently (?:if (?:not )?exists )?(?:[\w"]+\.)?(\w+)`)

// statements returns the statements of a way that is marked by outsideTx, and nil for any other.
func statements(way string) (all []string) {
	_, way, marked := strings.Cut(way, outsideTx)
	if !marked {
		return nil
	}
	for s := range strings.SplitSeq(way+"\n", ";\n") {
		if s = uncommented(s); s != "" {
			all = append(all, s)
		}
	}
	return all
}

// uncommented returns a statement without the lines of comment before it.
func uncommented(s string) string {
	for s = strings.TrimSpace(s); strings.HasPrefix(s, "--"); s = strings.TrimSpace(s) {
		_, s, _ = strings.Cut(s, "\n")
	}
	return s
}

// runApart executes the statements one after another, and then writes the version that they lead to.
func runApart(ctx context.Context, conn *pgx.Conn, n Name, what string, all []string, to int32, tell []func(string)) error {
	for i, s := range all {
		name, create := "", false
		if m := concurrentIndex.FindStringSubmatch(s); m != nil {
			name, create = m[2], !strings.EqualFold(m[1], "drop ")
		}
		step := fmt.Sprintf("%s (statement %d of %d)", what, i+1, len(all))
		err := patiently(ctx, conn, n, step, tell, func() error {
			if name == "" {
				_, err := conn.Exec(ctx, s)
				return err
			}
			defer tellLater(fmt.Sprintf("%s works on index %s; other sessions go on meanwhile", step, name), tell)()
			return concurrently(ctx, conn, n, name, s, create)
		})
		if err != nil {
			return fmt.Errorf("%s: %w", step, err)
		}
	}
	if _, err := conn.Exec(ctx, n.SQL(`update getwork.version set version = $1`), to); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// tellLater reports the message every ten seconds, until the function is called that it returns.
func tellLater(message string, tell []func(string)) (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-done:
				return
			case <-time.After(tellEvery):
				for _, f := range tell {
					f(message)
				}
			}
		}
	}()
	return func() { close(done); <-ended }
}

const selectValid = `
select i.indisvalid
from pg_index i join pg_class c on c.oid = i.indexrelid join pg_namespace s on s.oid = c.relnamespace
where s.nspname = $1 and c.relname = $2`

// concurrently builds or drops an index. It waits for transactions that began before, under a lock of the table that no write
// conflicts with. So its waits have no limit: nobody waits behind it.
func concurrently(ctx context.Context, conn *pgx.Conn, n Name, index, statement string, create bool) error {
	if _, err := conn.Exec(ctx, unhurried); err != nil {
		return err
	}
	if create {
		var valid bool
		err := conn.QueryRow(ctx, selectValid, string(n), index).Scan(&valid)
		if err == nil && valid || err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		if err == nil {
			if _, err := conn.Exec(ctx, `drop index concurrently if exists `+n.Quoted()+`.`+index); err != nil {
				return err
			}
		}
	}
	_, err := conn.Exec(ctx, statement)
	return err
}
