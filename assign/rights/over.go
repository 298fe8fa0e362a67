package rights

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
)

// A provider may send its log-out message while a log-in is under way: its code is exchanged, and there is no session yet that
// the message could end. So the message is remembered, and ends that log-in, too. Both first take a lock for the provider's
// session or account, so that the later one sees what the earlier one did.

// overKept is how long a message is remembered; longer than a log-in takes from its ID token to its session.
const overKept = 2 * time.Minute

const (
	// Two keys with one hash only wait for each other. The lock ends with the transaction.
	lockOver = `select pg_advisory_xact_lock(hashtextextended($1, 0))`

	// until is the time of the message plus overKept, and selectOver asks with the time of the ID token plus overKept: it finds a
	// message that is no older than the ID token. Both times are by the provider's clock.
	insertOver = `
insert into getwork.once (what, until) values ($1, $2)
on conflict (what) do update set until = greatest(once.until, excluded.until)`

	selectOver = `select exists (select from getwork.once where what = any($1::text[]) and until >= $2)`
)

// overKey names what a message is about: a session of the provider, or else all of an account.
func overKey(iss, sid, sub string) string {
	about := "session " + sid
	if sid == "" {
		about = "account " + sub
	}
	sum := sha256.Sum256([]byte("over " + iss + "\n" + about))
	return hex.EncodeToString(sum[:])
}

func (g *Registry) lockOver(ctx context.Context, tx pgx.Tx, keys ...string) error {
	slices.Sort(keys) // two log-ins of one account wait for each other in turn
	for _, key := range keys {
		if _, err := tx.Exec(ctx, g.SQL(lockOver), key); err != nil {
			return fmt.Errorf("lock a provider's session: %w", err)
		}
	}
	return nil
}

// rememberOver keeps a message for log-ins that are under way.
func (g *Registry) rememberOver(ctx context.Context, tx pgx.Tx, e Ending) error {
	_, err := tx.Exec(ctx, g.SQL(insertOver), overKey(e.Iss, e.SID, e.Sub), e.IssuedAt.Add(overKept))
	return err
}

// refuseOver refuses a log-in that the provider has ended since it issued the ID token.
func (g *Registry) refuseOver(ctx context.Context, tx pgx.Tx, in LogIn) error {
	if in.IssuedAt.IsZero() {
		return nil
	}
	keys := []string{overKey(in.Iss, "", in.Sub)}
	if in.SID != "" {
		keys = append(keys, overKey(in.Iss, in.SID, ""))
	}
	if err := g.lockOver(ctx, tx, keys...); err != nil {
		return err
	}
	var over bool
	if err := tx.QueryRow(ctx, g.SQL(selectOver), keys, in.IssuedAt.Add(overKept)).Scan(&over); err != nil || !over {
		return err
	}
	return assign.Refuse(assign.LogInFailed, "your identity provider has logged you out meanwhile; log in again")
}
