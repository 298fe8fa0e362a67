package hook

import "testing"

// Hooks that have more to send than a node sends at once take turns.
func TestManyHooksTakeTurns(t *testing.T) {
	t.Parallel()
	d := newDesk(t, nil)
	const hooks, rounds = atOnce + 8, 20 // the chance that one of 40 is left out in 20 rounds is about 1 in 10^12
	d.exec(`insert into getwork.hook (url, events, secret, created_by) select 'https://receiver.example', '{work.closed}', '', 'ada' from generate_series(1, $1::integer)`, hooks)
	d.exec(`
insert into getwork.hook_event (hook_id, task_id, item, type, body)
select h.id, 1, i::text, 'work.closed', '{}' from getwork.hook h cross join generate_series(1, $1::integer) i`, perHook*rounds)
	served := map[int64]bool{}
	for range rounds {
		claimed, err := d.sender.claim(t.Context(), []int64{})
		if err != nil {
			t.Fatal(err)
		}
		if len(claimed) != atOnce {
			t.Fatalf("%d hooks at once, want %d", len(claimed), atOnce)
		}
		for id, events := range claimed {
			served[id] = true
			if len(events) != perHook {
				t.Fatalf("%d events of one hook, want %d", len(events), perHook)
			}
		}
	}
	if len(served) != hooks {
		t.Errorf("%d of %d hooks had a turn in %d rounds", len(served), hooks, rounds)
	}
}
