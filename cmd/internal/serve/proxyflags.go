package serve

import (
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	"getwork/assign/rights"
	"getwork/cmd/internal/command"
	"getwork/web/identity"
)

// Behind has the settings for --auth proxy.
type Behind struct {
	ProxyUserHeader   string        `help:"The header in which the proxy names the user (default ${default})." default:"X-Forwarded-User" placeholder:"NAME"`
	ProxyGroupsHeader string        `help:"The header in which the proxy names the user's groups, separated by commas (default ${default})." default:"X-Forwarded-Groups" placeholder:"NAME"`
	ProxySecretFile   string        `help:"A file with the secret that the proxy sends in X-Getwork-Proxy-Secret, of 32 characters or more, on its first line, and the old secret on its second line while it is rotated." placeholder:"FILE" complete:"file"`
	ProxyClientCA     string        `name:"proxy-client-ca" help:"The authority, as PEM, that signs the proxy's client certificate; best is one that signs nothing else. Needs --tls-cert, because the proxy shows its certificate only over TLS." placeholder:"FILE" complete:"file"`
	ProxyClientName   string        `help:"The name in that certificate's subjectAltName: a DNS name or a URI." placeholder:"SAN"`
	ProxyMax          time.Duration `help:"How long live channels and held answers last under --auth proxy before clients must come through the proxy again (default ${default})." default:"15m"`

	proxySecrets []string
	clientCAs    *x509.CertPool // nil: nobody shows a certificate
}

// headerName matches what proxies can send, and programs behind CGI can tell apart.
var headerName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9]*(-[A-Za-z0-9]+)*$`)

// sanName matches DNS names and URIs (with SPIFFE's), without wildcards: a name of many is no proof. Empty: there is none.
var sanName = regexp.MustCompile(`^([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?|[A-Za-z][A-Za-z0-9+.-]*:[!-)+-~]+)?$`)

// taken are headers that mean something else, or that a proxy changes by itself.
var taken = []string{"authorization", "connection", "content-length", "content-type", "cookie", "forwarded", "host", "if-match", "if-none-match", "origin", "prefer",
	"idempotency-key", "upgrade", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-getwork-user", "x-getwork-role", "x-getwork-groups", "x-getwork-instance", "x-getwork-proxy-secret"}

// checkBehind reads the settings of --auth proxy; its error says what is missing.
func (i *Identity) checkBehind() (err error) {
	if i.Auth != "proxy" {
		for _, flag := range given(i.Behind) {
			return command.Usage("%s is for --auth proxy, and this is --auth %s; leave it out", flag, i.Auth)
		}
		return nil
	}
	switch {
	case len(i.proxies) == 0:
		return command.Usage("--auth proxy needs --trusted-proxy, the network of the proxy that names users")
	case i.ProxySecretFile == "" && i.ProxyClientCA == "" && i.ProxyClientName == "":
		return command.Usage("--auth proxy needs --proxy-secret-file, or --proxy-client-ca with --proxy-client-name: whoever else is in the proxy's network could otherwise name any user")
	case (i.ProxyClientCA == "") != (i.ProxyClientName == ""):
		return command.Usage("--proxy-client-ca and --proxy-client-name belong together: whoever else has a certificate of that authority could otherwise name any user; give both, or neither")
	case i.ProxyClientCA != "" && i.TLSCert == "":
		return command.Usage("--proxy-client-ca needs --tls-cert and --tls-key: the proxy shows its certificate only over TLS that ends here")
	case !sanName.MatchString(i.ProxyClientName):
		return command.Usage("--proxy-client-name must be a DNS name or a URI as in the certificate, such as proxy.bank.example; not %q", i.ProxyClientName)
	case len(i.rules.Grants) == 0:
		return command.Usage("--auth proxy needs --grant ROLE=GROUP at least once: without it nobody can come in")
	case i.ProxyMax < time.Minute || i.ProxyMax > 24*time.Hour:
		return command.Usage("--proxy-max must be from 1m to 24h, not %s", i.ProxyMax)
	case strings.EqualFold(i.ProxyUserHeader, i.ProxyGroupsHeader):
		return command.Usage("--proxy-user-header and --proxy-groups-header must be two headers, not both %s", i.ProxyUserHeader)
	}
	for flag, name := range map[string]string{"--proxy-user-header": i.ProxyUserHeader, "--proxy-groups-header": i.ProxyGroupsHeader} {
		if !headerName.MatchString(name) || slices.Contains(taken, strings.ToLower(name)) {
			return command.Usage("%s must be a header of the proxy's own, of letters, digits and dashes, such as X-Forwarded-User; not %q", flag, name)
		}
	}
	for _, g := range i.rules.Grants {
		if strings.Contains(g.Group, ",") {
			return command.Usage("--grant %s=…: a proxy separates groups by commas, so a group with a comma in it never matches; have the proxy send another name", g.Role)
		}
	}
	if i.clientCAs, err = authorities("--proxy-client-ca", i.ProxyClientCA); err != nil || i.ProxySecretFile == "" {
		return err
	}
	text, err := os.ReadFile(i.ProxySecretFile)
	if err != nil {
		return command.Usage("--proxy-secret-file: %v", err)
	}
	if i.proxySecrets, err = proxySecrets(string(text)); err != nil {
		return command.Usage("--proxy-secret-file %s %v", i.ProxySecretFile, err)
	}
	return nil
}

// proxySecrets reads one secret, or two while it is changed.
func proxySecrets(text string) ([]string, error) {
	lines := strings.Split(strings.TrimRight(strings.ReplaceAll(text, "\r\n", "\n"), "\n"), "\n")
	for _, line := range lines {
		if len(line) < 32 || strings.ContainsFunc(line, func(r rune) bool { return r > unicode.MaxASCII || !unicode.IsGraphic(r) || r == ' ' }) {
			return nil, fmt.Errorf("must have 32 characters or more on each line, of ASCII and without blanks, as `openssl rand -hex 32` writes them")
		}
	}
	if len(lines) > 2 {
		return nil, fmt.Errorf("must have one line, or two while the secret is changed, not %d", len(lines))
	}
	return lines, nil
}

// openProxy prepares --auth proxy.
func (c *Command) openProxy(registry *rights.Registry) *identity.Proxy {
	if c.Auth != "proxy" {
		return nil
	}
	return &identity.Proxy{Rights: registry, Trusted: c.proxies, Secrets: c.proxySecrets, ClientName: c.ProxyClientName, UserHeader: http.CanonicalHeaderKey(c.ProxyUserHeader), GroupsHeader: http.CanonicalHeaderKey(c.ProxyGroupsHeader), Rules: c.rules}
}
