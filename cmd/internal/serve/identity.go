package serve

import (
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	"getwork/assign/rights"
	"getwork/cmd/internal/command"
	"getwork/schema"
	"getwork/web"
	"getwork/web/grants"
	"getwork/web/identity"
	"getwork/web/identity/oidc"
)

// Identity has the settings that say who may call, where from, and over what.
type Identity struct {
	Auth           string   `help:"How users are identified. dev: by the name that they give, and only on a loopback address; the default there. token: by API tokens alone. oidc: people log in at an OpenID provider, and tokens work beside it. proxy: a proxy in front says who they are, and tokens work beside it." default:"" enum:",dev,token,oidc,proxy" placeholder:"MODE"`
	PublicURL      string   `help:"The one origin that people and programs reach this node at, such as https://getwork.bank.example; on a loopback address port 0 means that of --listen. Needed unless --auth is dev." placeholder:"URL"`
	TLSCert        string   `help:"Serve TLS with this certificate, followed by those that sign it. A file that changes is loaded within a minute." placeholder:"FILE" complete:"file"`
	TLSKey         string   `help:"The private key of --tls-cert." placeholder:"FILE" complete:"file"`
	TrustedProxy   []string `help:"The networks of proxies that may end TLS for this node, and that name their client in X-Forwarded-For." placeholder:"CIDR"`
	MetricsListen  string   `help:"Serve /metrics on this address, over HTTP and for everybody who reaches it. Without it only --auth dev serves /metrics." placeholder:"ADDR"`
	FrameAncestors string   `help:"The origin whose pages may show this node's page in a frame, such as http://127.0.0.1:8083. By default none may." placeholder:"URL"`

	LogIn        `embed:""`
	Behind       `embed:""`
	AccessTokens `embed:""`
	Tokens       `embed:""`

	CertificateEvery time.Duration `kong:"-"` // how often the files of TLSCert and TLSKey are looked at; default 1 min

	origin  *url.URL       // PublicURL as browsers write it; nil: none was given
	proxies []netip.Prefix // TrustedProxy
}

// framer matches the origins that fit into a header.
var framer = regexp.MustCompile(`^https?://([A-Za-z0-9.-]+)(:[0-9]+)?$`)

// check returns a usage error if a flag is wrong, or if the flags together would let strangers in. It also reads them,
// and sets the mode where the default depends on the address.
func (i *Identity) check(listen string) (err error) {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return command.Usage("--listen must be HOST:PORT, such as 127.0.0.1:8080: %v", err)
	}
	// 127.0.0.2 is not among them: under --auth dev a node answers only to these names.
	named := slices.Contains([]string{"localhost", "127.0.0.1", "::1"}, host)
	switch {
	case i.Auth == "" && named:
		i.Auth = "dev"
	case i.Auth == "":
		return command.Usage("--auth has no default on %q, where others may reach the node; give --auth token with --public-url, or listen on a loopback address (localhost, 127.0.0.1 or [::1])", host)
	case i.Auth == "dev" && !named:
		return command.Usage("--auth dev believes every name that it is told, so it serves only on a loopback address (localhost, 127.0.0.1 or [::1]), not on %q", host)
	}
	if i.PublicURL != "" {
		if i.origin, err = parseOrigin(i.PublicURL); err != nil {
			return err
		}
	}
	if i.proxies, err = parseProxies(i.TrustedProxy); err != nil {
		return err
	}
	if i.MetricsListen != "" {
		if _, _, err := net.SplitHostPort(i.MetricsListen); err != nil {
			return command.Usage("--metrics-listen must be HOST:PORT, such as 127.0.0.1:9090: %v", err)
		}
	}
	switch {
	case i.origin == nil && i.Auth != "dev":
		return command.Usage("--auth %s needs --public-url, the address that people and programs use, such as https://getwork.bank.example", i.Auth)
	case i.origin != nil && i.Auth == "dev" && !loopback(i.origin.Hostname()):
		return command.Usage("under --auth dev the node answers only to localhost, 127.0.0.1 and [::1], so --public-url can't be %s; leave it out, or use another --auth", i.origin)
	case (i.TLSCert == "") != (i.TLSKey == ""):
		return command.Usage("--tls-cert and --tls-key belong together; give both files, or neither")
	case i.TLSCert != "" && i.origin != nil && i.origin.Scheme != "https":
		return command.Usage("with --tls-cert the node speaks only TLS, so --public-url must begin with https://, not be %s", i.origin)
	case i.Auth != "dev" && !loopback(host) && i.TLSCert == "" && len(i.proxies) == 0:
		return command.Usage("on %q, credentials would cross the network unencrypted; give --tls-cert and --tls-key, or --trusted-proxy with the networks of the proxies that end TLS", host)
	}
	if err := i.checkLogIn(); err != nil {
		return err
	}
	if err := i.checkBehind(); err != nil {
		return err
	}
	if err := i.checkAccessTokens(); err != nil {
		return err
	}
	if err := i.checkTokens(); err != nil {
		return err
	}
	return i.checkFramer()
}

// checkFramer refuses to let any other site show the page in a frame, where it could lead clicks astray. Pages on this
// machine may frame a node that is for this machine, as the demo's does.
func (i *Identity) checkFramer() error {
	if i.FrameAncestors == "" {
		return nil
	}
	parts := framer.FindStringSubmatch(i.FrameAncestors)
	if parts == nil {
		return command.Usage("--frame-ancestors must be an origin, such as http://127.0.0.1:8083, without a path; not %q", i.FrameAncestors)
	}
	own := i.origin != nil && i.FrameAncestors == i.origin.String()
	local := loopback(parts[1]) && (i.origin == nil || loopback(i.origin.Hostname()))
	if !own && !local {
		return command.Usage("--frame-ancestors must be this node's own --public-url, unless both are on a loopback address: the page of %s could lead people's clicks astray", i.FrameAncestors)
	}
	return nil
}

// hostname matches the hosts of URLs as browsers write them, apart from IPv6 addresses.
var hostname = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$`)

// parseOrigin reads --public-url, and returns it as browsers write origins: in small letters, without the scheme's own
// port.
func parseOrigin(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, command.Usage("--public-url can't be read; it is an origin, such as https://getwork.bank.example")
	case u.User != nil:
		return nil, command.Usage("--public-url must not hold a name or a password; give an origin, such as https://getwork.bank.example")
	case u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.Opaque != "":
		return nil, command.Usage("--public-url must begin with https:// and a host, such as https://getwork.bank.example, not be %q", text)
	case u.Path != "" || u.RawQuery != "" || u.ForceQuery || strings.Contains(text, "#"):
		return nil, command.Usage("--public-url must end after the host and port, as in %s://%s: getwork is served at the root, without a path or a query", u.Scheme, u.Host)
	}
	host, port := strings.ToLower(u.Hostname()), u.Port()
	address, wrong := netip.ParseAddr(host)
	switch {
	case wrong == nil && address.Zone() != "" || wrong != nil && !hostname.MatchString(host):
		return nil, command.Usage("--public-url has the host %q, which is no name that browsers send; write it in ASCII (xn--…), without a dot at its end", host)
	case u.Scheme == "http" && !loopback(host):
		return nil, command.Usage("--public-url must begin with https://: only on a loopback address may credentials go over http, not to %s", host)
	case strings.HasSuffix(u.Host, ":") || strings.HasPrefix(port, "0") && (port != "0" || !loopback(host)):
		return nil, command.Usage("--public-url has no port that browsers send; write it as in https://getwork.bank.example:8443, or leave it out")
	}
	if wrong == nil && address.Is6() {
		host = "[" + address.String() + "]"
	}
	if port != "" && port != map[string]string{"https": "443", "http": "80"}[u.Scheme] {
		host += ":" + port
	}
	return &url.URL{Scheme: u.Scheme, Host: host}, nil
}

// The shortest prefixes of --trusted-proxy. No bank's proxies have a larger network, and two halves of everything are
// as dangerous as everything.
const (
	shortest4 = 8 // 10.0.0.0/8
	shortest6 = 7 // fc00::/7
)

// parseProxies reads --trusted-proxy. Whoever is in one of these networks may invent the client's address.
func parseProxies(list []string) (proxies []netip.Prefix, err error) {
	for _, text := range list {
		if text = strings.TrimSpace(text); text == "" {
			return nil, command.Usage("--trusted-proxy has an empty network; give networks such as 10.1.2.0/24, separated by commas")
		}
		p, err := netip.ParsePrefix(text)
		if address, one := netip.ParseAddr(text); one == nil && address.Zone() == "" {
			p, err = netip.PrefixFrom(address, address.BitLen()), nil
		}
		switch {
		case err != nil:
			return nil, command.Usage("--trusted-proxy takes networks such as 10.1.2.0/24, separated by commas; %q is none", text)
		case p.Addr().Is4In6():
			return nil, command.Usage("--trusted-proxy %s holds IPv4 addresses; write them in their own form, such as 10.1.2.0/24", text)
		case p.Addr().Is4() && p.Bits() < shortest4 || p.Addr().Is6() && p.Bits() < shortest6:
			return nil, command.Usage("--trusted-proxy %s would believe strangers who say that they are proxies; name the proxies' own networks", text)
		case p != p.Masked():
			return nil, command.Usage("--trusted-proxy %s is either the network %s or the address %s; write which", text, p.Masked(), p.Addr())
		}
		proxies = append(proxies, p)
	}
	return proxies, nil
}

// loopback reports whether a host is this machine itself.
func loopback(host string) bool {
	address, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && address.IsLoopback()
}

// LogIn has the settings for people who log in at an OpenID provider, and what a provider's groups mean here.
type LogIn struct {
	OIDCIssuer           string        `name:"oidc-issuer" help:"The identity provider, as its discovery document names itself." placeholder:"URL"`
	OIDCClientID         string        `name:"oidc-client-id" help:"The client id that the provider gave to this installation." placeholder:"ID"`
	OIDCClientSecretFile string        `name:"oidc-client-secret-file" help:"A file with the client's secret on its first line, and the old secret on its second line while it is rotated." placeholder:"FILE" complete:"file"`
	OIDCCAFile           string        `name:"oidc-ca-file" help:"The authorities, as PEM, that sign the certificates of the provider and of --jwt-issuer. The default is the system's." placeholder:"FILE" complete:"file"`
	OIDCScopes           string        `name:"oidc-scopes" help:"The scopes to request; with offline_access the provider must confirm a session every ten minutes (default ${default})." default:"openid profile" placeholder:"SCOPES"`
	OIDCNameClaim        string        `name:"oidc-name-claim" help:"The claim with the user's name, as a dotted path (default ${default})." default:"preferred_username" placeholder:"CLAIM"`
	OIDCGroupsClaim      string        `name:"oidc-groups-claim" help:"The claim with the user's groups, as a dotted path (default ${default})." default:"groups" placeholder:"CLAIM"`
	OIDCStale            time.Duration `name:"oidc-stale" help:"How long a session outlives a provider that does not answer (default ${default})." default:"1h"`
	BackchannelNoExp     bool          `help:"Accept log-out messages without exp, as Hydra and LemonLDAP send them, for two minutes."`
	Grant                []string      `help:"Give a role (worker, agent, observer or manager), or admin in addition to a role, to a group of the provider. The first grant that matches decides a user's role; a user whom none matches can't log in. Repeatable; the variable has one grant on each line." sep:"none" placeholder:"ROLE=GROUP"`
	TaskGroups           string        `help:"Which of the provider's groups tasks can name: all, or those with this prefix, which is removed from their names." default:"all" placeholder:"all|PREFIX"`
	SessionIdle          time.Duration `help:"How long a session may be idle before it ends (default ${default})." default:"30m"`
	SessionMax           time.Duration `help:"How long a session lives at most (default ${default})." default:"10h"`

	secrets []string
	rules   grants.Rules
	name    oidc.Path
	groups  oidc.Path
	roots   *x509.CertPool
	look    time.Duration // how often sessions are checked; 0: as often as is good
}

// checkLogIn reads the settings for the mode of --auth; its error says what is missing.
func (i *Identity) checkLogIn() (err error) {
	l := &i.LogIn
	l.rules = grants.Rules{TaskGroups: l.TaskGroups}
	for _, text := range l.Grant {
		for line := range strings.Lines(text) { // GETWORK_GRANT has one on each line: a group may have commas and blanks
			if line = strings.Trim(line, "\r\n"); line == "" {
				continue
			}
			g, err := grants.Parse(line)
			if err != nil {
				return command.AsUsage(err)
			}
			l.rules.Grants = append(l.rules.Grants, g)
		}
	}
	if i.Auth != "oidc" {
		for _, flag := range given(*l) {
			switch {
			case flag == "--grant" || flag == "--task-groups": // see checkAccessTokens
			case i.JWTIssuer == "":
				return command.Usage("%s is for --auth oidc, and this is --auth %s; leave it out", flag, i.Auth)
			case flag != "--oidc-ca-file" && flag != "--oidc-groups-claim":
				return command.Usage("%s is for --auth oidc, and this is --auth %s with --jwt-issuer; leave it out", flag, i.Auth)
			}
		}
		l.roots, err = authorities("--oidc-ca-file", l.OIDCCAFile)
		return err
	}
	if l.SessionIdle < 5*time.Minute || l.SessionIdle > 12*time.Hour {
		return command.Usage("--session-idle must be from 5m to 12h, not %s", l.SessionIdle)
	}
	if l.SessionMax < l.SessionIdle || l.SessionMax > 24*time.Hour {
		return command.Usage("--session-max must be from --session-idle to 24h, not %s", l.SessionMax)
	}
	if l.OIDCStale < time.Minute {
		return command.Usage("--oidc-stale must be at least 1m, not %s", l.OIDCStale)
	}
	if l.OIDCIssuer == "" || l.OIDCClientID == "" || l.OIDCClientSecretFile == "" {
		return command.Usage("--auth oidc needs --oidc-issuer, --oidc-client-id and --oidc-client-secret-file")
	}
	if len(l.rules.Grants) == 0 {
		return command.Usage("--auth oidc needs --grant ROLE=GROUP at least once: without it nobody can log in")
	}
	secret, err := os.ReadFile(l.OIDCClientSecretFile)
	if err != nil {
		return command.Usage("--oidc-client-secret-file: %v", err)
	}
	if l.secrets, err = oidc.ParseSecrets(secret); err != nil {
		return command.Usage("--oidc-client-secret-file: %v", err)
	}
	if l.name, err = oidc.ParsePath(l.OIDCNameClaim); err != nil {
		return command.Usage("--oidc-name-claim: %v", err)
	}
	if l.groups, err = oidc.ParsePath(l.OIDCGroupsClaim); err != nil {
		return command.Usage("--oidc-groups-claim: %v", err)
	}
	l.roots, err = authorities("--oidc-ca-file", l.OIDCCAFile)
	return err
}

// scopes returns the scopes that the provider is asked for.
func (l *LogIn) scopes() []string { return strings.Fields(l.OIDCScopes) }

// AccessTokens has the settings for programs that show access tokens of an issuer.
type AccessTokens struct {
	JWTIssuer    string        `name:"jwt-issuer" help:"Take access tokens (JWT) of this issuer as bearer tokens, beside getwork's own." placeholder:"URL"`
	JWTAudience  string        `name:"jwt-audience" help:"The audience (aud) that such a token must have." placeholder:"AUDIENCE"`
	JWTTyp       string        `name:"jwt-typ" help:"The type (typ) that its header must have (default ${default})." default:"at+jwt" placeholder:"TYP"`
	JWTMax       time.Duration `name:"jwt-max" help:"The longest time between its iat and exp (default ${default})." default:"2h"`
	JWTNameClaim string        `name:"jwt-name-claim" help:"The claim with the user's name. By default sub; if the issuer is that of --oidc-issuer, the claim of --oidc-name-claim." placeholder:"CLAIM"`
	JWTAlgs      []string      `name:"jwt-algs" help:"The signature algorithms to accept (default ${default})." default:"RS256,PS256,ES256,EdDSA" placeholder:"ALG"`

	jwtName, jwtGroups oidc.Path
}

// checkAccessTokens reads the settings; its error says what is wrong.
func (i *Identity) checkAccessTokens() (err error) {
	if (i.JWTIssuer == "") != (i.JWTAudience == "") {
		return command.Usage("--jwt-issuer and --jwt-audience belong together: a token for somebody else must not open this server; give both, or neither")
	}
	if i.JWTIssuer == "" {
		for _, flag := range given(i.AccessTokens) {
			return command.Usage("%s is for --jwt-issuer, and there is none; give it, or leave %s out", flag, flag)
		}
		for _, flag := range given(i.LogIn) { // of these only the ones that say what groups mean are left
			if i.Auth == "dev" || i.Auth == "token" {
				return command.Usage("%s is for --auth oidc or proxy, and for --jwt-issuer; under --auth %s nobody has groups of a provider, so leave it out", flag, i.Auth)
			}
		}
		return nil
	}
	name := i.JWTNameClaim
	switch {
	case i.Auth == "dev":
		return command.Usage("--jwt-issuer is not for --auth dev, which believes every name; use --auth token, oidc or proxy")
	case len(i.rules.Grants) == 0:
		return command.Usage("--jwt-issuer needs --grant ROLE=GROUP at least once: without it nobody has a role")
	case i.JWTMax < time.Minute || i.JWTMax > 24*time.Hour:
		return command.Usage("--jwt-max must be from 1m to 24h, not %s", i.JWTMax)
	case i.JWTTyp == "":
		return command.Usage("--jwt-typ must not be empty; access tokens have the type at+jwt, or what your issuer's documentation says")
	case name == "" && i.Auth == "oidc" && i.JWTIssuer == i.OIDCIssuer:
		name = i.OIDCNameClaim
	case name == "":
		name = "sub"
	}
	if err := oidc.CheckAlgorithms(i.JWTAlgs); err != nil {
		return command.AsUsage(err)
	}
	if i.jwtName, err = oidc.ParsePath(name); err != nil {
		return command.Usage("--jwt-name-claim: %v", err)
	}
	if i.jwtGroups, err = oidc.ParsePath(i.OIDCGroupsClaim); err != nil {
		return command.Usage("--oidc-groups-claim: %v", err)
	}
	if _, err := oidc.NewSource(oidc.SourceConfig{Issuer: i.JWTIssuer}); err != nil {
		return command.Usage("--jwt-issuer: %v", err)
	}
	return nil
}

// openAccessTokens prepares for access tokens. Their issuer need not answer now. One that also logs people in is asked once.
func (n *node) openAccessTokens() error {
	c := n.config
	if c.JWTIssuer == "" {
		return nil
	}
	source := n.source
	if source == nil || source.Issuer != c.JWTIssuer {
		var err error
		if source, err = oidc.NewSource(oidc.SourceConfig{Issuer: c.JWTIssuer, Roots: c.roots, Log: n.log}); err != nil {
			return command.AsUsage(fmt.Errorf("--jwt-issuer: %w", err))
		}
		n.issuer = source
	}
	judge, err := oidc.NewJWT(oidc.JWTConfig{Source: source, Audience: c.JWTAudience, Typ: c.JWTTyp, Max: c.JWTMax, Algorithms: c.JWTAlgs,
		NameClaim: c.jwtName, GroupsClaim: c.jwtGroups, Rules: c.rules})
	if err != nil {
		return command.AsUsage(err)
	}
	n.programs = &identity.Programs{JWT: judge, Rights: n.rights.Registry}
	return nil
}

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

// headerName matches what proxies can send, and programs behind CGI can distinguish.
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

// Tokens has the settings for API tokens.
type Tokens struct {
	TokenMax         time.Duration `help:"The longest life of an API token (default ${default}, 366 days)." default:"8784h"`
	TokenOwnerWithin time.Duration `help:"A personal token stops working when its owner has not logged in for this long (default ${default}, 30 days)." default:"720h"`
}

// longestToken bounds both.
const longestToken = 8784 * time.Hour

// checkTokens returns a usage error if tokens could live for ever, or not at all.
func (i *Identity) checkTokens() error {
	if i.Auth == "dev" {
		for _, flag := range given(i.Tokens) {
			return command.Usage("%s is not for --auth dev, which knows no tokens; leave it out", flag)
		}
		return nil
	}
	if i.TokenMax < time.Hour || i.TokenMax > longestToken {
		return command.Usage("--token-max must be from 1h to 8784h, not %s: tokens must be renewed at least once a year", i.TokenMax)
	}
	if i.TokenOwnerWithin < time.Hour || i.TokenOwnerWithin > longestToken {
		return command.Usage("--token-owner-within must be from 1h to 8784h, not %s", i.TokenOwnerWithin)
	}
	return nil
}

// openRights makes the node's registry of rights, and the watch over those that end. Under --auth dev there is none: the node
// believes what a call says.
func (n *node) openRights(id string, name schema.Name) {
	if n.config.Auth == "dev" {
		return
	}
	registry := rights.New(rights.Config{Node: id, DB: n.pools.Router(), SQL: name.SQL, Channel: name.Channel(), Audit: n.audit, Log: n.log,
		Idle: n.config.SessionIdle, TokenMax: n.config.TokenMax, OwnerWithin: n.config.TokenOwnerWithin, QueryAuthors: n.config.QueryAuthors,
		Lock: n.engine.LockCredentials, Cancel: n.engine.EndCredentials, CancelEnded: n.engine.CancelEnded, Rebind: n.engine.Rebind, Regroup: n.engine.ChangeGroups})
	n.rights = rights.NewWatch(registry)
	n.proxy = n.config.openProxy(registry)
	n.attempts = web.NewAttempts()
}

// identityFigures returns what /metrics shows of how people and programs come in; nil: nothing.
func (n *node) identityFigures() *web.IdentityFigures {
	if n.rights == nil {
		return nil
	}
	f := &web.IdentityFigures{Attempts: n.attempts, Lag: n.rights.Lag}
	if n.logIns != nil {
		f.Sessions = n.rights.Alive
	}
	var sources []*oidc.Source
	for _, s := range []*oidc.Source{n.source, n.issuer} {
		if s != nil {
			sources = append(sources, s)
		}
	}
	if len(sources) > 0 {
		f.Up = func() bool { return !slices.ContainsFunc(sources, func(s *oidc.Source) bool { return !s.Up() }) }
		f.Fetches = func() (n int64) {
			for _, s := range sources {
				n += s.Fetches()
			}
			return n
		}
	}
	return f
}

// openLogIn prepares log-in at an OpenID provider. The provider need not answer now.
func (n *node) openLogIn() error {
	c := n.config
	if c.Auth != "oidc" {
		return nil
	}
	source, err := oidc.NewSource(oidc.SourceConfig{Issuer: c.OIDCIssuer, Roots: c.roots, Log: n.log})
	if err != nil {
		return command.AsUsage(fmt.Errorf("--oidc-issuer: %w", err))
	}
	provider, err := oidc.New(oidc.Config{Source: source, ClientID: c.OIDCClientID, Secrets: c.secrets, Scopes: c.scopes(), PublicURL: c.origin.String(),
		NameClaim: c.name, GroupsClaim: c.groups, Rules: c.rules, BackchannelNoExp: c.BackchannelNoExp, Once: n.rights.Once})
	if err != nil {
		return command.AsUsage(err)
	}
	n.source = source
	n.logIns = &identity.LogIns{Provider: provider, Rights: n.rights, Max: c.SessionMax, Stale: c.OIDCStale, Look: c.look, Log: n.log}
	return nil
}

// identify returns how this node learns who its callers are.
func (n *node) identify() web.Identify {
	if n.rights == nil {
		return web.DevIdentity
	}
	c := identity.Config{Rights: n.rights.Registry, Address: web.ClientAddress, Failed: web.NewAddressLimit(30), Untimely: web.NewAddressLimit(30), Log: n.log,
		Count: n.attempts.Count}
	if n.logIns != nil {
		c.Cookie = n.logIns.Cookie
	}
	if n.proxy != nil {
		c.Proxy = n.proxy.Named
	}
	if n.programs != nil {
		c.JWT = n.programs.Judge
	}
	return c.Identify()
}

// logInRoutes returns the addresses of the log-in, if there is one.
func (n *node) logInRoutes() (routes []web.Route) {
	if n.logIns == nil {
		return nil
	}
	h := &oidc.Handlers{Provider: n.logIns.Provider, Sessions: n.logIns, Address: web.ClientAddress, Problem: web.Refuser(n.log), Log: n.log, Count: n.attempts.Count,
		BadMessages: web.NewAddressLimit(badMessagesPerMinute).Allow}
	limits := map[string]*web.AddressLimit{"/auth/login": web.NewAddressLimit(logInsPerMinute), "/auth/callback": web.NewAddressLimit(logInsPerMinute)}
	for _, r := range h.Routes() {
		routes = append(routes, web.Route{Method: r.Method, Path: r.Path, Handler: r.Handler, Limit: limits[r.Path]})
	}
	terminals := identity.Terminals{Rights: n.rights.Registry, LogIn: n.logInPath(), Problem: web.Refuser(n.log), Log: n.log}
	walls := identity.Walls{Rights: n.rights.Registry, Cookie: n.logIns.Cookie, Keep: n.logIns.Provider.NewSessionCookie, Refuse: web.Refuser(n.log), Log: n.log}
	return slices.Concat(routes, terminals.Routes(), walls.Routes())
}

const (
	logInsPerMinute      = 30  // how many log-ins one address may begin, and end
	badMessagesPerMinute = 120 // how many log-out messages that are no good it may send
)

// heldFor is how long something live of a caller may last in any case.
func (n *node) heldFor(c *web.Caller) time.Duration { return identity.HeldFor(c, n.config.ProxyMax) }

// logInPath is where a browser logs in, or nothing. Under --auth dev the page itself asks for a name.
func (n *node) logInPath() string {
	switch {
	case n.config.Auth == "dev":
		return "/"
	case n.logIns == nil:
		return ""
	}
	return "/auth/login"
}
