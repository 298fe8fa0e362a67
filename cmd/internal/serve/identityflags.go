package serve

import (
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"getwork/cmd/internal/command"
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
