package rights

import (
	"context"
	"net/netip"
	"runtime"
	"strconv"
	"testing"

	"getwork/assign"
	"getwork/schema/schematest"
)

// Somebody who waits with a socket costs a node less than 1 KiB more where people log in. Not in parallel: it measures the heap.
func TestMemoryOfAWaitingUser(t *testing.T) {
	schematest.Long(t)
	const users = 2000
	d := newDesk(t)
	d.exec(t, `
with entered as (
  insert into getwork.principal (name, name_key, iss, sub, kind, role, groups)
  select 'user ' || n, 'user ' || n, 'https://login.bank.example', n::text, 'person', 'worker', '{loan-desk,loan-desk-berlin}'
  from generate_series(1, $1::integer) n
  returning id, sub, role, groups
)
insert into getwork.session (id, public_id, principal, role, admin, groups, auth_time, idle_at, ends_at)
select sha256(convert_to('cookie ' || sub, 'UTF8')), lpad(sub, 12, '0'), id, role, false, groups, clock_timestamp(), clock_timestamp() + interval '30 minutes', clock_timestamp() + interval '10 hours'
from entered`, users)
	kept := make([]*Rights, users)
	before := heap()
	for i := range kept {
		cookie := "cookie " + strconv.Itoa(i+1)
		r, err := d.Session(context.Background(), cookie)
		if err != nil || r.Role != assign.RoleWorker || len(r.Groups) != 2 {
			t.Fatalf("%+v %v", r, err)
		}
		d.Used(&r, netip.Addr{}, true)
		kept[i] = &r
		d.watch.Follow(&r, 0, func(End) {})
	}
	if err := d.watch.look(context.Background()); err != nil {
		t.Fatal(err)
	}
	d.watch.flushUses(context.Background())
	d.cache.clear() // as a second later, when nobody asks for them
	each := float64(heap()-before) / users
	t.Logf("%.0f bytes", each)
	if each < 200 || each > 1024 {
		t.Errorf("each of %d users costs %.0f bytes, want less than 1 KiB", users, each)
	}
	runtime.KeepAlive(kept)
	runtime.KeepAlive(d)
}

// heap returns how many bytes are in use.
func heap() int64 {
	for range 2 {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
