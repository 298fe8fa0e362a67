package engine

import (
	"testing"
	"time"

	"getwork/assign"
	"getwork/schema/schematest"
)

// A change that comes alone is announced by its own transaction, whatever becomes of the node then.
func TestChangesTellOfThemselves(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	url := schematest.URL(t)
	a, b := startNode(t, url, nodeOptions{dumb: true, every: time.Nanosecond}), startNode(t, url, nodeOptions{})
	db := pool(t, url)
	newInbox(t, a, "inbox", func(s *assign.Settings) { s.Lease = lasting(time.Hour) })
	newInbox(t, a, "empty", nil)
	a.push(t, "inbox", "one", "two", "three", "four")
	ann, bob := b.eventsOf(t, "ann"), b.eventsOf(t, "bob")
	holder := assign.Holder{User: "ann"}
	dispose := func(id int64, outcome string) {
		t.Helper()
		if _, err := a.Dispose(t.Context(), id, assign.Disposition{Outcome: outcome}, holder, false); err != nil {
			t.Fatal(err)
		}
	}
	swept := func(statement, set string, id int64) {
		t.Helper()
		execute(t, db, `update getwork.work set `+set+` where id = $1`, id)
		// A node's own sweep may have been earlier; it announces in the same way.
		if found, err := (sweeper{a.Engine}).sweepOnce(t.Context(), statement); err != nil || len(found) > 1 {
			t.Fatalf("swept %v, %v", found, err)
		}
	}

	r := a.click(t, "inbox", "ann", 1)
	one := r.Work[0]
	heard(t, ann, "a quick round gave her work", requestIs(r.ID, assign.Assigned))
	if _, err := a.Extend(t.Context(), one.ID, holder); err != nil {
		t.Fatal(err)
	}
	heard(t, ann, "it was extended", workIs(one.ID, "held"))
	dispose(one.ID, "complete")
	heard(t, ann, "it was completed", workIs(one.ID, "completed"))

	two, _, err := a.Claim(t.Context(), "inbox", "two", assign.Who{Holder: holder})
	if err != nil {
		t.Fatal(err)
	}
	heard(t, ann, "it was claimed", workIs(two.ID, "held"))
	given, err := a.Reassign(t.Context(), two.ID, "bob", "boss")
	if err != nil {
		t.Fatal(err)
	}
	heard(t, ann, "it was taken away", workIs(two.ID, "reassigned"))
	heard(t, bob, "it was given to the new holder", workIs(given.ID, "held"))
	dry, err := a.Release(t.Context(), assign.Release{User: "bob", DryRun: true}, "boss")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Release(t.Context(), assign.Release{User: "bob", Token: dry.Token}, "boss"); err != nil {
		t.Fatal(err)
	}
	heard(t, bob, "it was released", workIs(given.ID, "returned"))

	three, _, err := a.Claim(t.Context(), "inbox", "three", assign.Who{Holder: holder})
	if err != nil {
		t.Fatal(err)
	}
	heard(t, ann, "it was claimed", workIs(three.ID, "held"))
	swept(warnHolders, `warn_at = clock_timestamp()`, three.ID)
	heard(t, ann, "its lease is about to run out", workIs(three.ID, "held"))
	swept(expireWork, `lease_expires_at = clock_timestamp()`, three.ID)
	heard(t, ann, "it expired", workIs(three.ID, "expired"))

	waits := a.linger(t, "empty", "ann", 1)
	heard(t, ann, "she waits", requestIs(waits.ID, assign.Pending))
	if _, err := a.Cancel(t.Context(), waits.ID, holder, false); err != nil {
		t.Fatal(err)
	}
	heard(t, ann, "that was cancelled", requestIs(waits.ID, assign.Cancelled))
	waits = a.linger(t, "empty", "ann", 1)
	heard(t, ann, "she waits again", requestIs(waits.ID, assign.Pending))
	execute(t, db, `update getwork.work_requested set linger_until = clock_timestamp(), look_after = clock_timestamp() + interval '1 hour' where id = $1`, waits.ID)
	if err := a.endLingering(t.Context()); err != nil {
		t.Fatal(err)
	}
	heard(t, ann, "her time is over", requestIs(waits.ID, assign.None))
}
