package oidc

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

const (
	callWithin = 5 * time.Second // a call of the provider, its answer included
	mostAnswer = 1 << 20         // bytes of an answer, unpacked
)

// transport bounds a provider's answers, and notes whether it answers at all.
type transport struct {
	*http.Transport
	up atomic.Bool
}

// newClient returns a client for calls of one provider. It follows no redirect: an endpoint that is not where discovery says
// is refused, and a secret goes nowhere else.
func newClient(roots *x509.CertPool, within time.Duration) (*http.Client, *transport) {
	t := &transport{Transport: &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		TLSClientConfig:        &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		ForceAttemptHTTP2:      true,
		MaxIdleConnsPerHost:    4,
		IdleConnTimeout:        30 * time.Second,
		MaxResponseHeaderBytes: 64 << 10,
	}}
	return &http.Client{
		Transport:     t,
		Timeout:       within,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, t
}

func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := t.Transport.RoundTrip(r)
	if err != nil {
		if !errors.Is(r.Context().Err(), context.Canceled) { // a browser that goes away says nothing of the provider
			t.up.Store(false)
		}
		return nil, err
	}
	t.up.Store(response.StatusCode < 500)
	response.Body = &bounded{ReadCloser: response.Body, left: mostAnswer}
	return response, nil
}

// bounded fails, instead of ending, where an answer is too long: half of an answer must not look like a whole one.
type bounded struct {
	io.ReadCloser
	left int
}

var errTooLarge = errors.New("the provider's answer has more than 1 MiB")

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left+1)])
	if b.left -= n; b.left < 0 {
		return 0, errTooLarge
	}
	return n, err
}
