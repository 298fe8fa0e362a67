package web

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// asset is a public file, plain and compressed.
type asset struct {
	kind   string
	plain  []byte
	packed func() []byte // by gzip; the plain content if that is not longer
	tag    string        // of the content
}

func newAsset(kind string, content []byte) *asset {
	sum := sha256.Sum256(content)
	return &asset{kind: kind, plain: content, tag: hex.EncodeToString(sum[:8]), packed: sync.OnceValue(func() []byte {
		var b bytes.Buffer
		w, _ := gzip.NewWriterLevel(&b, gzip.BestCompression)
		_, _ = w.Write(content)
		_ = w.Close()
		if b.Len() >= len(content) {
			return content
		}
		return b.Bytes()
	})}
}

// revalidate makes a cache ask each time whether its copy is still current.
const revalidate = "no-cache"

// fresh serves the file so that a cache asks for it each time.
func (a *asset) fresh() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { a.serve(w, r, revalidate) })
}

// serve answers GET and HEAD, with 304 if the client has the file already.
func (a *asset) serve(w http.ResponseWriter, r *http.Request, cache string) {
	h := w.Header()
	h.Set("Content-Type", a.kind)
	h.Set("Cache-Control", cache)
	h.Set("Vary", "Accept-Encoding")
	if a.kind != kinds[".html"] { // the page's policy says what the file may do in it; opened alone it may do nothing
		h.Set("Content-Security-Policy", "default-src 'none'")
		h.Del("Referrer-Policy")
	}
	content, tag := a.plain, a.tag
	if packed := a.packed(); len(packed) < len(content) && takesGzip(r.Header.Values("Accept-Encoding")) {
		content, tag = packed, a.tag+"-gzip" // other bytes need another tag, because it is a strong one
		h.Set("Content-Encoding", "gzip")
		w = &sized{w, len(content)}
	}
	h.Set("ETag", `"`+tag+`"`)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
}

// sized sets the length of a whole encoded body, which ServeContent leaves out. An answer without that body (412) or with a
// part of it (206) must not have that length: the client would wait for the rest.
type sized struct {
	http.ResponseWriter
	length int
}

func (s *sized) WriteHeader(status int) {
	switch h := s.Header(); status {
	case http.StatusOK:
		h.Set("Content-Length", strconv.Itoa(s.length))
	case http.StatusPreconditionFailed:
		h.Del("Content-Encoding")
	}
	s.ResponseWriter.WriteHeader(status)
}

// Unwrap is for [http.ResponseController].
func (s *sized) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// packed compresses a handler's answer. It is for long, repetitive lists without a tag.
func packed(h handler) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		if !takesGzip(r.Header.Values("Accept-Encoding")) || r.Method == http.MethodHead {
			return h(w, r)
		}
		p := &packing{ResponseWriter: w}
		if err := h(p, r); err != nil || p.to == nil {
			return err // the caller renders the error, uncompressed
		}
		_ = p.to.Close()
		packers.Put(p.to)
		return nil
	}
}

var packers = sync.Pool{New: func() any {
	w, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed)
	return w
}}

// packing compresses answers with status 200.
type packing struct {
	http.ResponseWriter
	to *gzip.Writer
}

func (p *packing) WriteHeader(status int) {
	if status == http.StatusOK {
		p.Header().Set("Content-Encoding", "gzip")
		p.Header().Set("Vary", "Accept-Encoding")
		p.to = packers.Get().(*gzip.Writer)
		p.to.Reset(p.ResponseWriter)
	}
	p.ResponseWriter.WriteHeader(status)
}

func (p *packing) Write(b []byte) (int, error) {
	if p.to == nil {
		return p.ResponseWriter.Write(b)
	}
	return p.to.Write(b)
}

// takesGzip reports whether Accept-Encoding prefers gzip to identity (RFC 9110, 12.5.3).
func takesGzip(accept []string) bool {
	const unsaid = -1
	packed, plain, others := float64(unsaid), float64(unsaid), float64(unsaid)
	for coding := range strings.SplitSeq(strings.ToLower(strings.Join(accept, ",")), ",") {
		name, parameter, _ := strings.Cut(coding, ";")
		q := 1.0
		if value, found := strings.CutPrefix(strings.TrimSpace(parameter), "q="); found {
			q, _ = strconv.ParseFloat(value, 64) // text that is no number counts as 0: not accepted
		}
		switch strings.TrimSpace(name) {
		case "gzip", "x-gzip":
			packed = q
		case "identity":
			plain = q
		case "*":
			others = q
		}
	}
	if packed == unsaid {
		packed = others
	}
	return packed > 0 && packed >= plain
}
