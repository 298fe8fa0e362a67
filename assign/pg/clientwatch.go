package pg

import (
	"context"
	"log/slog"
	"sync"

	"github.com/jackc/pgx/v5"
)

// ClientWatch makes the server check, while a statement runs, that its client is still connected. The query of a node that
// died then ends within half a second.
type ClientWatch struct {
	DB  Beginner
	Log *slog.Logger

	mu      sync.Mutex
	known   bool
	setting string
}

// watchClient applies to one transaction, so it also works through a transaction pooler.
const watchClient = `; set local client_connection_check_interval = '500ms'`

// Setting returns the text that follows "begin" in a transaction's first message. It is empty if the server can't watch its
// clients: on some platforms servers refuse the setting. The first call that reaches the server finds out.
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
		return "" // this error says nothing about the server
	default:
		w.Log.Warn("this server can't detect that a client is gone: the query of a node that died runs to its end", "error", err)
	}
	w.known = true
	return w.setting
}
