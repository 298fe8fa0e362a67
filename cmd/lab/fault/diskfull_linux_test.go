package fault

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"getwork/assign"
	"getwork/cmd/internal/e2e"
	"getwork/schema/postgres"
	"getwork/schema/schematest"
)

// smallDisk mounts a file system of that many MiB, and unmounts it with the test.
func smallDisk(t *testing.T, size int) string {
	t.Helper()
	dir := t.TempDir()
	for up := dir; up != os.TempDir() && up != "/"; up = filepath.Dir(up) { // PostgreSQL runs as another user than root
		if err := os.Chmod(up, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%dm,mode=0755", size)); err != nil {
		t.Skip("a file system of a few MiB can't be mounted here, which takes root's rights: ", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// fill uses all free space except that many bytes. empty gives the space back.
func fill(t *testing.T, dir string, except int64) {
	t.Helper()
	f, err := os.OpenFile(ballast(dir), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for part := make([]byte, 4096); err == nil; {
		_, err = f.Write(part)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	info, err := f.Stat()
	if err == nil && except > 0 {
		err = f.Truncate(info.Size() - except)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func empty(t *testing.T, dir string) {
	t.Helper()
	if err := os.Remove(ballast(dir)); err != nil {
		t.Fatal(err)
	}
}

func ballast(dir string) string { return filepath.Join(dir, "ballast") }

// The disk of the database is full. Clicks are answered so, and the log says what to do. When there is room again
// everything goes on by itself, and nothing that was answered is missing. Users who wait for a query then go on
// waiting: their round, which finds no room, is repeated.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	disk := smallDisk(t, 16)
	server := schematest.OwnServer(t, nil)
	s := newSite(t, 1, server.URL("getwork"))
	space := filepath.Join(disk, "space")
	if err := os.Mkdir(space, 0o700); err != nil {
		t.Fatal(err)
	}
	giveToServer(t, server, space)
	for _, statement := range []string{
		fmt.Sprintf(`create tablespace small location '%s'`, space),
		`alter table getwork.work_requested set tablespace small`,
		`alter table getwork.work set tablespace small`,
	} {
		if _, err := s.DB.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	defer dropSpace(t, s)
	// Each item's details have 64,000 bytes, and are kept apart from the work's row, where no page is free. Beyond 64 KiB the items would
	// be handed out without details, and might fit into the table's last page.
	gated, open := s.Gated(0, 10)
	s.Task("later", `select q.item, (select string_agg(md5(i::text || q.item), '') from generate_series(1, 2000) i) as much from (`+gated+`) q order by q.item`)
	later, a, err := s.As("later", 0).GetWork(t.Context(), "later", 5)
	if err != nil || a.Status != 202 {
		t.Fatalf("%d %s, %v", a.Status, a.Body, err)
	}
	s.shelf(100_000, 10)
	fill(t, disk, 1<<20)
	clicked := s.clickUntil(func(status int) bool { return status == 503 })
	t.Logf("%d clicks were answered until the disk was full", len(clicked))
	e2e.Await(t, "the log has advice", e2e.Soon, func() bool { return strings.Contains(s.Nodes[0].Output(), "free some space or enlarge it") })
	fill(t, disk, 0) // a click that needed several pages may have left some
	open()
	s.Await("the round finds no room", e2e.Soon, `select retries > 0 from getwork.task_state where name = 'later'`)
	if r, a, err := s.As("later", 0).Request(t.Context(), later.ID); err != nil || r.State != assign.Pending {
		t.Errorf("a request whose round found no room is %d %s, %v", a.Status, a.Body, err)
	}
	if status := s.ready(0); status != http.StatusOK {
		t.Errorf("the node can still read, but is not ready: %d", status)
	}
	empty(t, disk)
	e2e.Await(t, "clicks are served again", callBound, func() bool {
		r, a, err := s.As("afterwards", 0).GetWork(t.Context(), "verify", 1)
		return err == nil && a.Status == 201 && r.State == assign.Assigned
	})
	s.Served("later", 0, later.ID, e2e.Soon)
	if sizes := column[int](s, `select length(w.details->>'much') from getwork.work w where w.request_id = $1`, later.ID); !slices.Equal(sizes, []int{64000, 64000, 64000, 64000, 64000}) {
		t.Errorf("the details have %d bytes each, not 64000: there may have been room for them", sizes)
	}
	for user, id := range clicked {
		if r, a, err := s.As(user, 0).Request(t.Context(), id); err != nil || r.State != assign.Assigned {
			t.Fatalf("request %d of %s was answered, and is %d %s, %v", id, user, a.Status, a.Body, err)
		}
	}
	s.noDuplicates()
}

// clickUntil has many users click until one gets that answer, and returns those who were served.
func (s *site) clickUntil(so func(status int) bool) (served map[string]int64) {
	s.T.Helper()
	served = map[string]int64{}
	for i := 0; i < 50_000; i += 100 {
		ids := make([]int64, 100)
		stop := make([]bool, 100)
		var g errgroup.Group
		g.SetLimit(16)
		for j := range ids {
			g.Go(func() error {
				r, a, err := s.As(fmt.Sprintf("user-%d", i+j), 0).GetWork(s.T.Context(), "verify", 10)
				stop[j] = err == nil && so(a.Status)
				switch {
				case err == nil && a.Status == 201:
					ids[j] = r.ID
				case err == nil && a.Status > 202:
					err = refusedFor(a)
				}
				return err
			})
		}
		if err := g.Wait(); err != nil {
			s.T.Fatal(err)
		}
		stopped := false
		for j, id := range ids {
			if stopped = stopped || stop[j]; id != 0 {
				served[fmt.Sprintf("user-%d", i+j)] = id
			}
		}
		if stopped {
			return served
		}
	}
	s.T.Fatal("no click got that answer")
	return nil
}

// giveToServer makes the server's user the owner of a folder.
func giveToServer(t *testing.T, server *postgres.Server, dir string) {
	t.Helper()
	info, err := os.Stat(fmt.Sprintf("/proc/%d", server.PID()))
	if err != nil {
		t.Fatal(err)
	}
	st := info.Sys().(*syscall.Stat_t)
	if err := os.Chown(dir, int(st.Uid), int(st.Gid)); err != nil {
		t.Fatal(err)
	}
}

// dropSpace drops everything on the small disk, so that the server does not miss it when it ends.
func dropSpace(t *testing.T, s *site) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
	defer cancel()
	for _, node := range s.Nodes {
		node.Kill()
	}
	for _, table := range []string{"work_requested", "work"} {
		if _, err := s.DB.Exec(ctx, `drop table getwork.`+table+` cascade`); err != nil {
			t.Log(err)
		}
	}
	if _, err := s.DB.Exec(ctx, `drop tablespace small`); err != nil {
		t.Log(err)
	}
}
