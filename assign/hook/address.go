package hook

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"getwork/assign"
)

// closed are addresses that no hook may reach unless --webhook-allow names them: this machine, the services with which clouds
// give a machine its secrets, and ranges that hide another address or are no host's. Private ranges are not among them: that
// is where a bank's receivers are.
var closed = prefixes(
	"0.0.0.0/8", "127.0.0.0/8", // this machine
	"169.254.0.0/16",                         // link-local, with the metadata of most clouds
	"100.100.100.200/32", "168.63.129.16/32", // metadata of Alibaba, and of Azure
	"192.0.0.0/24",               // metadata of Oracle, among protocol assignments
	"192.88.99.0/24",             // relays of 6to4
	"224.0.0.0/4", "240.0.0.0/4", // multicast, reserved and broadcast
	"::/8",                   // unspecified, loopback, IPv4 in other forms, NAT64 of the network's own
	"fe80::/10", "fec0::/10", // link-local and site-local
	"fd00:ec2::/32", "fd20:ce::/32", // metadata of AWS, and of Google
	"fd00:c1::/32", "fd00:42::/32", // metadata of Oracle, and of Scaleway
	"2002::/16", "2001::/32", "100::/64", // 6to4, Teredo, discard
	"ff00::/8", // multicast
)

// nat64 holds IPv4 addresses in its last 32 bits.
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

func prefixes(texts ...string) []netip.Prefix {
	all := make([]netip.Prefix, len(texts))
	for i, text := range texts {
		all[i] = netip.MustParsePrefix(text)
	}
	return all
}

// plainAddress returns the address that packets to a go to in the end.
func plainAddress(a netip.Addr) netip.Addr {
	a = a.Unmap().WithZone("")
	if nat64.Contains(a) {
		b := a.As16()
		return netip.AddrFrom4([4]byte(b[12:]))
	}
	return a
}

// within reports whether one of the ranges has the address.
func within(ranges []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return p.Contains(a) })
}

// checkAddress refuses an address that a hook may not reach. plain: over http, which may reach only what is allowed by name.
func checkAddress(allow []netip.Prefix, a netip.Addr, plain bool) error {
	a = plainAddress(a)
	switch {
	case !a.IsValid():
		return fmt.Errorf("refused: no address")
	case within(allow, a):
		return nil
	case plain:
		return fmt.Errorf("refused: http is for addresses of --webhook-allow, and %s is none", a)
	case within(closed, a):
		return fmt.Errorf("refused: %s is loopback, link-local, a metadata service or reserved; --webhook-allow can allow it", a)
	}
	return nil
}

const longestURL = 2000

// checkURL refuses what is no URL of a hook. A name is looked up when it is dialled, and again each time.
func checkURL(allow []netip.Prefix, text string) error {
	u, err := url.Parse(text)
	wrong := func(format string, args ...any) error { return assign.RefuseField("url", format, args...) }
	switch {
	case err != nil || !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r == 0x7f }):
		return wrong("url is a URL such as https://receiver.example/getwork")
	case len(text) > longestURL:
		return wrong("url has at most %d bytes", longestURL)
	case u.Scheme == "http" && len(allow) == 0:
		return wrong("url begins with https://; http is only for nodes with --webhook-allow")
	case u.Scheme != "https" && u.Scheme != "http", u.Hostname() == "", u.Opaque != "":
		return wrong("url is a URL such as https://receiver.example/getwork")
	case u.User != nil:
		return wrong("url has no user and password: the receiver checks the signature")
	case u.Fragment != "" || strings.HasSuffix(text, "#"):
		return wrong("url has no fragment (#)")
	}
	if a, err := netip.ParseAddr(u.Hostname()); err == nil {
		if err := checkAddress(allow, a, u.Scheme == "http"); err != nil {
			return wrong("%v", err)
		}
	}
	return nil
}
