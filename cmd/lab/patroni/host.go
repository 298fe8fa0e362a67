package patroni

import (
	"context"
	"path/filepath"
	"syscall"

	"github.com/jackc/pgx/v5"
)

// Host is a Patroni and its PostgreSQL.
type Host struct {
	Name string

	cluster   *Cluster
	dir       string
	port, api int // of PostgreSQL, and of Patroni
}

// Kill ends the host as a power failure does: everything at once, without a farewell. It returns when no process is
// left.
func (h *Host) Kill() {
	h.Freeze() // otherwise one process would notice that another is gone
	signal(h.dir, syscall.SIGKILL)
}

// Freeze stops everything on the host (SIGSTOP): its connections stay open, but nothing answers on them.
func (h *Host) Freeze() { signal(h.dir, syscall.SIGSTOP) }

// Thaw lets the host go on (SIGCONT).
func (h *Host) Thaw() { signal(h.dir, syscall.SIGCONT) }

// Start starts the host, for the first time or again. It returns before the host is ready; see [Cluster.AwaitWhole].
func (h *Host) Start() {
	h.cluster.t.Helper()
	if err := h.start(); err != nil {
		h.cluster.t.Fatal(err)
	}
}

func (h *Host) start() error {
	return h.cluster.folder.start(h.dir, h.cluster.programs.patroni, filepath.Join(h.dir, "patroni.yml"))
}

// URL returns the URL of a database on this host, whatever its role.
func (h *Host) URL(database string) string {
	return "postgres://postgres:" + password + "@" + address(h.port) + "/" + database
}

// Mute stops the host from sending anything to its standbys, as if the line to them were cut. They reconnect after
// twenty seconds; Kill the host before.
func (h *Host) Mute(ctx context.Context) {
	h.cluster.t.Helper()
	conn, err := pgx.Connect(ctx, h.URL("postgres"))
	if err != nil {
		h.cluster.t.Fatal(err)
	}
	defer conn.Close(ctx)
	rows, err := conn.Query(ctx, `select pid from pg_stat_replication`)
	if err != nil {
		h.cluster.t.Fatal(err)
	}
	senders, err := pgx.CollectRows(rows, pgx.RowTo[int])
	if err != nil || len(senders) == 0 {
		h.cluster.t.Fatalf("%s sends to %d standbys: %v", h.Name, len(senders), err)
	}
	for _, id := range senders {
		_ = syscall.Kill(id, syscall.SIGSTOP)
	}
}
