package hook

import (
	"encoding/json"
	"testing"
)

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

// A claim reads each event that waits once, and for it the oldest one of its item, even if the statistics say that nothing waits. That is
// 3 pages an event here; comparing each with all others takes millions.
func TestClaimInABacklog(t *testing.T) {
	t.Parallel()
	d := newDesk(t, nil)
	d.exec(`insert into getwork.hook (url, events, secret, created_by) values ('https://receiver.example', '{work.closed}', '', 'ada')`)
	const write = `
insert into getwork.hook_event (hook_id, task_id, item, type, body, state, ended_at)
select 1, 1, (i % 100)::text, 'work.closed', '{}', $2::text, case when $2::text <> 'waiting' then clock_timestamp() end from generate_series(1, $1::integer) i`
	for _, statistics := range []string{"of an empty table", "of a time when all was delivered"} {
		d.exec(`delete from getwork.hook_event`)
		d.exec(write, 1000, "delivered")
		if statistics != "of an empty table" {
			d.exec(`analyze getwork.hook_event`)
		}
		const waiting = 3000
		d.exec(write, waiting, "waiting")
		d.exec(`
update getwork.hook_event e set attempts = 1, next_at = clock_timestamp() + interval '1 hour'
where state = 'waiting' and id = (select min(o.id) from getwork.hook_event o where o.item = e.item and o.state = 'waiting')`) // all items wait
		var plan []struct {
			Plan struct {
				Pages int `json:"Shared Hit Blocks"`
			}
		}
		if err := json.Unmarshal([]byte(d.text("explain (analyze, buffers, format json)"+claimEvents, []int64{}, perHook, atOnce, lease.Microseconds())), &plan); err != nil {
			t.Fatal(err)
		}
		if pages := plan[0].Plan.Pages; pages == 0 || pages > 10*waiting {
			t.Errorf("with the statistics %s a claim read %d pages for %d events that wait", statistics, pages, waiting)
		}
	}
}
