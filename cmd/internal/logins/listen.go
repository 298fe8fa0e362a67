package logins

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"time"
)

// CodeForm is what a code looks like.
var CodeForm = regexp.MustCompile(`^[0-9A-Za-z]{12}\.[0-9A-Za-z_-]{43}$`)

// Listener waits on this machine for a browser with a code.
type Listener struct {
	Port int

	listener net.Listener
}

// Listen listens on a free port of 127.0.0.1.
func Listen() (*Listener, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for the browser: %w; --paste needs no port", err)
	}
	return &Listener{Port: l.Addr().(*net.TCPAddr).Port, listener: l}, nil
}

// Await calls redeem with each code that a browser brings, until one is good or ctx ends. A page that guesses the port brings
// none that is.
func (l *Listener) Await(ctx context.Context, redeem func(code string) error) error {
	host := fmt.Sprintf("127.0.0.1:%d", l.Port)
	done := make(chan struct{}, 1)
	server := &http.Server{ReadHeaderTimeout: 5 * time.Second, MaxHeaderBytes: 8 << 10, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Type", "text/plain; charset=utf-8")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-store")
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		code := r.URL.Query().Get("code")
		if r.Host != host || r.Method != http.MethodGet || r.URL.Path != "/" || !CodeForm.MatchString(code) {
			http.Error(w, "There is nothing here.", http.StatusNotFound)
			return
		}
		if err := redeem(code); err != nil {
			http.Error(w, "The log-in failed. Run getwork login again.", http.StatusBadRequest)
			return
		}
		_, _ = io.WriteString(w, "The terminal is logged in. You can close this page.\n")
		select {
		case done <- struct{}{}:
		default:
		}
	})}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l.listener) }()
	defer func() {
		closing, cancel := context.WithTimeout(context.Background(), time.Second) // the browser gets its answer
		defer cancel()
		if server.Shutdown(closing) != nil {
			_ = server.Close()
		}
	}()
	select {
	case <-done:
		return nil
	case err := <-served:
		return fmt.Errorf("listen for the browser: %w", err)
	case <-ctx.Done():
		return ctx.Err()
	}
}
