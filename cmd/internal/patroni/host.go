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
	port, api int // PostgreSQL's, and Patroni's
}

// Kill ends the host as a power failure does: everything at once, with no farewell. It returns when nothing is left.
func (h *Host) Kill() {
	h.Freeze() // or one would still hear that another is gone
	signal(h.dir, syscall.SIGKILL)
}

// Freeze stops everything on the host (SIGSTOP): its connections stay open, and nobody answers on them.
func (h *Host) Freeze() { signal(h.dir, syscall.SIGSTOP) }

// Thaw lets it go on (SIGCONT).
func (h *Host) Thaw() { signal(h.dir, syscall.SIGCONT) }

// Start starts the host, the first time or again. It returns before the host is any use; see [Cluster.AwaitWhole].
func (h *Host) Start() {
	h.cluster.t.Helper()
	if err := h.start(); err != nil {
		h.cluster.t.Fatal(err)
	}
}

func (h *Host) start() error {
	return h.cluster.folder.start(h.dir, h.cluster.programs.patroni, filepath.Join(h.dir, "patroni.yml"))
}

// URL is the address of a database on this host, whatever its part is.
func (h *Host) URL(database string) string {
	return "postgres://postgres:" + password + "@" + address(h.port) + "/" + database
}

// Mute has the host send its standbys nothing more, as if the line to them were cut. They connect anew after twenty seconds;
// Kill it before.
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
