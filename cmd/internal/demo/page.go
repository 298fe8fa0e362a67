package demo

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"

	"getwork/web"
)

// demoPage is the demo's own page: the nodes' pages in frames, below the crowd that clicks at once. It looks like the
// nodes' page, whose files it uses.
//
//go:embed demo
var demoPage embed.FS

// listenBeside opens the port after the nodes', or a free one if that is in use.
func listenBeside(ctx context.Context, addresses []string) (net.Listener, error) {
	host, port, err := net.SplitHostPort(addresses[len(addresses)-1])
	if err != nil {
		return nil, err
	}
	if last, _ := strconv.Atoi(port); last > 0 {
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(last+1)))
		if err == nil {
			return l, nil
		}
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return nil, fmt.Errorf("listen for the demo's page: %w; choose another address with --listen", err)
	}
	return l, nil
}

// originOf returns the origin with which a browser reaches a loopback address. A header that names an origin has no
// room for IPv6.
func originOf(a net.Addr) string {
	host, port, _ := net.SplitHostPort(a.String())
	if strings.Contains(host, ":") {
		host = "localhost"
	}
	return "http://" + net.JoinHostPort(host, port)
}

// serve serves the page until ctx ends. Before it returns it ends the scene and undoes its changes.
func (t *theatre) serve(ctx context.Context, l net.Listener) error {
	server := &http.Server{
		Handler:           t.handler(),
		ReadHeaderTimeout: 10 * time.Second,
		MaxHeaderBytes:    64 << 10,
		BaseContext:       func(net.Listener) context.Context { return ctx },
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(l) }()
	var err error
	select {
	case <-ctx.Done():
		_ = server.Close()
		err = <-failed
	case err = <-failed:
	}
	if errors.Is(err, http.ErrServerClosed) {
		err = nil
	} else {
		err = fmt.Errorf("serve the demo's page: %w", err)
	}
	t.close()
	return err
}

// handler answers the page's calls, which come only from this machine and from the page itself.
func (t *theatre) handler() http.Handler {
	m := http.NewServeMux()
	m.Handle("GET /static/", served(http.FileServerFS(web.Static())))
	m.Handle("GET /demo/", served(http.FileServerFS(demoPage)))
	m.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) { http.ServeFileFS(w, r, demoPage, "demo/index.html") })
	m.HandleFunc("GET /events", t.events)
	m.HandleFunc("POST /scenes/{scene}", t.told(func(ctx context.Context, r *http.Request) error { return t.begin(ctx, r.PathValue("scene")) }))
	m.HandleFunc("POST /stop", t.told(func(context.Context, *http.Request) error { t.interrupt(); return nil }))
	m.HandleFunc("POST /nodes/{node}/{what}", t.told(t.changeNode))
	return t.secured(http.NewCrossOriginProtection().Handler(m))
}

// secured answers only to the page's own name, because any page on the internet can have its name resolve to 127.0.0.1.
// Under another name of this machine the nodes' cookies would belong to another site.
func (t *theatre) secured(next http.Handler) http.Handler {
	var frames strings.Builder
	for _, n := range t.demo.fleet.all() {
		frames.WriteString(" " + n.origin())
	}
	if t.demo.provider != nil {
		frames.WriteString(" " + t.demo.provider.Issuer)
	}
	policy := "default-src 'none'; script-src 'self'; style-src 'self'; font-src 'self'; img-src 'self' data:; connect-src 'self'; frame-src" + frames.String() +
		"; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types lit-html"
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "same-origin")
		h.Set("Cache-Control", "no-cache")
		if "http://"+r.Host != t.demo.fleet.framedBy {
			http.Error(w, "the demo's page is at "+t.demo.fleet.framedBy, http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// served sets the content types of files itself, because the system's own table differs from machine to machine.
func served(files http.Handler) http.Handler {
	kinds := map[string]string{".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml", ".woff2": "font/woff2"}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		kind, known := kinds[path.Ext(r.URL.Path)]
		if !known {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", kind)
		files.ServeHTTP(w, r)
	})
}

// told does what a button asks for. If it fails, the answer says why.
func (t *theatre) told(do func(context.Context, *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		switch err := do(t.ctx, r); {
		case errors.Is(err, errNoSuch):
			http.Error(w, err.Error(), http.StatusNotFound)
		case err != nil:
			http.Error(w, err.Error(), http.StatusConflict)
		default:
			w.WriteHeader(http.StatusNoContent)
		}
	}
}

var errNoSuch = errors.New("there is nothing of that name")

func (t *theatre) changeNode(ctx context.Context, r *http.Request) error {
	i, err := strconv.Atoi(r.PathValue("node"))
	if err != nil || i < 1 || i > t.demo.nodes() {
		return errNoSuch
	}
	switch r.PathValue("what") {
	case "kill":
		err = t.demo.fleet.kill(i - 1)
	case "start":
		if err = t.demo.fleet.restart(ctx, i-1); err == nil {
			t.demo.progress.step(fmt.Sprintf("node %d was started again", i))
		}
	default:
		return errNoSuch
	}
	return err
}

// fewest is the shortest time between two events.
const fewest = 100 * time.Millisecond

// events sends the whole state of the page whenever that has changed.
func (t *theatre) events(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	to := http.NewResponseController(w)
	for {
		nodes := t.demo.fleet.next()
		shown, changed := t.show()
		text, err := json.Marshal(shown)
		if err != nil {
			return
		}
		if _, err := fmt.Fprintf(w, "data: %s\n\n", text); err != nil || to.Flush() != nil {
			return
		}
		select {
		case <-time.After(fewest):
		case <-r.Context().Done():
			return
		}
		select {
		case <-changed:
		case <-nodes:
		case <-r.Context().Done():
			return
		}
	}
}
