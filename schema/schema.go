// Package schema holds getwork's tables: numbered migrations, the code that applies them, and the name of the
// PostgreSQL schema they live in.
//
// Everything is inside that one schema, the table of versions too, so that getwork can live in a database
// beside other programs, and [Down] to 0 leaves nothing of it behind.
//
// Any number of nodes may call [Up] at once, on an empty database too: an advisory lock lets one at a time work,
// and all but the first find nothing to do. The lock belongs to the session, so a migration needs a direct
// connection to PostgreSQL: a transaction pooler would take the lock in one server connection, run the migration
// in another, and leave the lock behind. [Status], [Check], and [Up] with nothing to do take no lock, and work
// through a pooler.
package schema

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/tern/v2/migrate"
)

var (
	// ErrNewer means that a newer getwork has migrated the schema. This program doesn't know the new meaning of
	// the columns, and must not write.
	ErrNewer = errors.New("schema is newer than this program")

	// ErrOlder means that migrations are missing.
	ErrOlder = errors.New("schema is older than this program")

	// ErrUnreleased means that the tables were made before 0.1. No migration leads on from them.
	ErrUnreleased = errors.New("schema was made before getwork 0.1")
)

// lockClass is the first key of the advisory lock under which schemas are made, migrated and dropped; the
// second is a hash of the name. It spells "gwmi". Tern's own lock, which has one bigint key and so another
// key space, is always taken inside it.
const lockClass = 0x67776d69

// How long a session rests before it asks again for a lock that another has.
const (
	firstAsk = 10 * time.Millisecond
	longAsk  = 500 * time.Millisecond
)

// unlockTimeout bounds the unlocking after the caller's context is over.
const unlockTimeout = 5 * time.Second

// Status returns the database's version, and the latest that this program knows. Before the first migration
// current is 0. If the tables were made before 0.1, it returns [ErrUnreleased]. Those are known by their table of versions, which had
// another name: migrations to come have the numbers that theirs had.
func Status(ctx context.Context, conn *pgx.Conn, n Name) (current, latest int32, err error) {
	all, err := load(n)
	if err != nil {
		return 0, 0, err
	}
	latest = int32(len(all))
	const exists = `select to_regclass($1::text) is not null, to_regclass($2::text) is not null`
	var made, unreleased bool
	if err := conn.QueryRow(ctx, exists, n.versionTable(), n.Quoted()+".schema_version").Scan(&made, &unreleased); err != nil {
		return 0, latest, fmt.Errorf("schema version: %w", err)
	}
	if unreleased {
		return 0, latest, fmt.Errorf("%w: save what you need of %s with pg_dump, and use an empty database or another --schema", ErrUnreleased, n)
	}
	if !made {
		return 0, latest, nil
	}
	const version = `select version from getwork.version`
	if err := conn.QueryRow(ctx, n.SQL(version)).Scan(&current); err != nil {
		return 0, latest, fmt.Errorf("schema version: %w", err)
	}
	return current, latest, nil
}

// Check is for a node that may not migrate. It returns nil if the schema has exactly this program's version,
// otherwise an error that is [ErrOlder] or [ErrNewer] and says what to do.
func Check(ctx context.Context, conn *pgx.Conn, n Name) error {
	current, latest, err := Status(ctx, conn, n)
	switch {
	case err != nil:
		return err
	case current > latest:
		return newer(n, current, latest)
	case current < latest:
		return fmt.Errorf("%w: %s is at version %d, needed is %d: run `getwork migrate up`", ErrOlder, n, current, latest)
	}
	return nil
}

// Up migrates to the latest version, and makes the schema if it is missing. A migration is one transaction. If it builds indexes
// while people work, it is several, and after an interruption a later call goes on with them. Up waits for locks in short tries
// until ctx ends, and reports by tell that it waits. If the schema is newer than this program, Up leaves it alone and returns
// [ErrNewer]. The connection must be a direct one, see the package comment; its settings are reset after a migration.
func Up(ctx context.Context, conn *pgx.Conn, n Name, tell ...func(message string)) error {
	// A node that restarts finds nothing to do, and then needs neither the lock nor the right to create.
	current, latest, err := Status(ctx, conn, n)
	switch {
	case err != nil:
		return err
	case current > latest:
		return newer(n, current, latest)
	case current == latest:
		return nil
	}
	return locked(ctx, conn, n, func() error {
		if err := create(ctx, conn, n); err != nil {
			return err
		}
		return migrateTo(ctx, conn, n, latest, tell)
	})
}

// Down migrates back to version to, which must not be above the current one. It deletes data. Down to 0 also drops
// the schema, and fails if others have put objects into it. Down leaves a schema alone that is newer than this
// program, because only the newer one knows the way back, and returns [ErrNewer]. It waits for locks as [Up] does.
func Down(ctx context.Context, conn *pgx.Conn, n Name, to int32, tell ...func(message string)) error {
	return locked(ctx, conn, n, func() error {
		current, _, err := Status(ctx, conn, n)
		if err != nil {
			return err
		}
		if to < 0 || to > current {
			return fmt.Errorf("migrate down: version %d is not between 0 and the current %d", to, current)
		}
		if current > 0 {
			if err := migrateTo(ctx, conn, n, to, tell); err != nil {
				return err
			}
		}
		if to > 0 {
			return nil
		}
		return patiently(ctx, conn, n, "dropping schema "+string(n), tell, func() error { return drop(ctx, conn, n) })
	})
}

// migrateTo runs the migrations between the current version and the given one. The caller holds the lock, and
// the schema exists.
func migrateTo(ctx context.Context, conn *pgx.Conn, n Name, to int32, tell []func(string)) error {
	all, err := load(n)
	if err != nil {
		return err
	}
	m, err := migrate.NewMigrator(ctx, conn, n.versionTable())
	if err != nil {
		return fmt.Errorf("schema version: %w", err)
	}
	for _, file := range all {
		m.AppendMigration(file.name, file.up, file.down)
	}
	// The version is read again under the lock: a newer node may have migrated while this one waited.
	current, err := m.GetCurrentVersion(ctx)
	if err != nil {
		return fmt.Errorf("schema version: %w", err)
	}
	if latest := int32(len(all)); current > latest {
		return newer(n, current, latest)
	}
	for current != to { // one at a time, so that a finished one is not tried again
		next, file := current+1, current
		if to < current {
			next, file = current-1, current-1
		}
		what, way := fmt.Sprintf("migration %s of %s", all[file].name, n), all[file].up
		if next < current {
			way = all[file].down
		}
		if apart := statements(way); apart != nil {
			err = runApart(ctx, conn, n, what, apart, next, tell)
		} else {
			err = patiently(ctx, conn, n, what, tell, func() error { return m.MigrateTo(ctx, next) })
		}
		if err != nil {
			return fmt.Errorf("migrate %s from version %d to %d: %w", n, current, next, err)
		}
		current = next
	}
	return nil
}

// create makes the schema if it is missing. It asks first, because create schema if not exists needs the right
// to create even when there is nothing to create.
func create(ctx context.Context, conn *pgx.Conn, n Name) error {
	const exists = `select exists (select from pg_catalog.pg_namespace where nspname = $1)`
	var made bool
	if err := conn.QueryRow(ctx, exists, string(n)).Scan(&made); err != nil {
		return fmt.Errorf("look for schema %s: %w", n, err)
	}
	if made {
		return nil
	}
	if _, err := conn.Exec(ctx, `create schema `+n.Quoted()); err != nil {
		return fmt.Errorf("create schema %s (the login needs CREATE on the database): %w", n, err)
	}
	return nil
}

// drop removes the emptied schema with its table of versions. It does not cascade, so it deletes no objects of
// others.
func drop(ctx context.Context, conn *pgx.Conn, n Name) error {
	err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, n.SQL(`drop table if exists getwork.version`)); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `drop schema if exists `+n.Quoted())
		return err
	})
	if err != nil {
		return fmt.Errorf("drop schema %s: %w", n, err)
	}
	return nil
}

// locked runs f under the advisory lock of this schema. It asks for the lock again and again: a statement that waited for it
// would have a snapshot all the while, and a migration that builds an index concurrently waits for every snapshot. Two sessions can't safely create a schema at the same time,
// not even with if not exists: both check, both insert, one fails.
func locked(ctx context.Context, conn *pgx.Conn, n Name, f func() error) (err error) {
	h := fnv.New32a()
	h.Write([]byte(n))
	key := int32(h.Sum32())
	if _, err := conn.Exec(ctx, unhurried); err != nil {
		return fmt.Errorf("lock schema %s: %w", n, err)
	}
	for rest := firstAsk; ; rest = min(2*rest, longAsk) {
		var mine bool
		if err := conn.QueryRow(ctx, `select pg_catalog.pg_try_advisory_lock($1::int4, $2::int4)`, int32(lockClass), key).Scan(&mine); err != nil {
			return fmt.Errorf("lock schema %s: %w", n, err)
		}
		if mine {
			break
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("lock schema %s: another session migrates it: %w", n, ctx.Err())
		case <-time.After(rest + rand.N(rest)):
		}
	}
	defer func() {
		// The caller's context may be over. Then pgx has closed the connection, which frees the lock too.
		if conn.IsClosed() {
			return
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), unlockTimeout)
		defer cancel()
		_, unlockErr := conn.Exec(ctx, `select pg_catalog.pg_advisory_unlock($1::int4, $2::int4)`, int32(lockClass), key)
		_, _ = conn.Exec(ctx, `reset all`)
		if err == nil && unlockErr != nil {
			err = fmt.Errorf("unlock schema %s: %w", n, unlockErr)
		}
	}()
	return f()
}

func newer(n Name, current, latest int32) error {
	return fmt.Errorf("%w: %s is at version %d, this getwork knows up to %d: run the newer getwork, or go back with its `getwork migrate down`",
		ErrNewer, n, current, latest)
}

// versionTable is tern's table of versions: inside the schema, so that dropping the schema leaves nothing. It is
// quoted, because a name may be a reserved word. Tern then doesn't find it in the catalogue and executes create
// table if not exists, which has the same result.
func (n Name) versionTable() string { return n.Quoted() + ".version" }
