package doctor

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"getwork/cmd/internal/serve"
)

// local reports whether a server is on this machine.
func local(host string) bool {
	a, err := netip.ParseAddr(host)
	return strings.HasPrefix(host, "/") || host == "localhost" || err == nil && a.IsLoopback()
}

func lookAtSecrets(_ context.Context, x *examination) (found []Finding, err error) {
	files := x.config.Secrets()
	for _, flag := range slices.Sorted(maps.Keys(files)) {
		if is, err := os.Stat(files[flag]); err == nil && is.Mode().Perm()&0o004 != 0 {
			found = append(found, warned("execute chmod o-rwx "+files[flag], "everybody on this machine may read %s of %s", files[flag], flag))
		}
	}
	if len(files) == 0 {
		return one(skipped("no file holds a secret"))
	}
	return orFine(found, "%s, which not everybody on this machine may read", counted(len(files), "file"))
}

func lookAtCertificate(_ context.Context, x *examination) (found []Finding, err error) {
	cert, host, err := x.config.Certificate()
	switch {
	case err != nil:
		return one(failed("correct the files: PEM, the node's own certificate first, and its key", "--tls-cert and --tls-key can't be used: %v", err))
	case cert == nil:
		return one(skipped("the node serves no TLS itself"))
	}
	if left := time.Until(cert.NotAfter); left <= 0 {
		found = append(found, failed("replace the files; nodes load them within a minute", "the certificate of --tls-cert ended on %s", cert.NotAfter.Format(time.DateOnly)))
	} else if left < x.limits.certificate {
		found = append(found, warned("replace the files; nodes load them within a minute", "the certificate of --tls-cert ends on %s", cert.NotAfter.Format(time.DateOnly)))
	}
	if host != "" {
		if err := cert.VerifyHostname(host); err != nil {
			found = append(found, failed("have a certificate made for it", "the certificate of --tls-cert does not name the host of --public-url, and browsers refuse it: %v", err))
		}
	}
	return orFine(found, "valid until %s", cert.NotAfter.Format(time.DateOnly))
}

func lookAtIssuers(ctx context.Context, x *examination) (found []Finding, err error) {
	var log bytes.Buffer
	sources, err := x.config.Issuers(slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		return nil, err
	}
	if len(sources) == 0 {
		return one(skipped("people and programs come in without one"))
	}
	for _, s := range sources {
		log.Reset()
		err := s.Try(ctx)
		switch {
		case err != nil:
			found = append(found, failed("look at the provider, at the network to it, and at --oidc-ca-file; until it answers nobody can log in", "%s can't be used: %v", s.Issuer, err))
		case log.Len() > 0:
			found = append(found, failed("allow client_secret_basic for this client at the provider", "%s does not offer client_secret_basic, which getwork uses", s.Issuer))
		default:
			found = append(found, fine("%s answers, and has keys", s.Issuer))
		}
	}
	return found, nil
}

// lookAtFiles checks this process's limit, which is a node's if both are started in the same way.
func lookAtFiles(_ context.Context, x *examination) ([]Finding, error) {
	has := serve.Handles()
	room := has - has/8 // what a node leaves for other things: see the metric getwork_connections_max
	what := fmt.Sprintf("a process may open %d files here, which is room for %d connections", has, room)
	if room < x.config.MaxSockets {
		return one(warned("raise it (ulimit -n, LimitNOFILE= in the unit), or lower --max-sockets", "%s; --max-sockets is %d", what, x.config.MaxSockets))
	}
	return one(fine("%s", what))
}
