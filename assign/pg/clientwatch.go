package pg

import (
	"context"
	"log/slog"
	"sync"

	"github.com/jackc/pgx/v5"
)

// ClientWatch has the server look whether its client is still there while a statement runs, so that the query of a node that
// died ends within half a second.
type ClientWatch struct {
	DB  Beginner
	Log *slog.Logger

	mu      sync.Mutex
	known   bool
	setting string
}

// watchClient holds for one transaction, so it works through a transaction pooler, too.
const watchClient = `; set local client_connection_check_interval = '500ms'`

// Setting is what a transaction's first message has behind "begin", or nothing: servers on some platforms can't watch their
// clients, and refuse to be told to. That is found out once, when the server answers.
func (w *ClientWatch) Setting(ctx context.Context) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.known {
		return w.setting
	}
	tx, err := w.DB.BeginTx(ctx, pgx.TxOptions{BeginQuery: "begin" + watchClient})
	switch {
	case err == nil:
		_ = tx.Rollback(ctx)
		w.setting = watchClient
	case ctx.Err() != nil || Away(err):
		return "" // it says nothing about the server
	default:
		w.Log.Warn("this server does not watch its clients: the query of a node that died runs to its end", "error", err)
	}
	w.known = true
	return w.setting
}
