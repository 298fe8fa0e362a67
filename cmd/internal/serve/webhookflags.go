package serve

import "net/netip"

// Webhooks has the settings for sending web hooks.
type Webhooks struct {
	WebhookAllow []netip.Prefix `help:"Networks that web hooks may reach although they are loopback, link-local, a cloud's metadata or reserved; also over http. Public and private networks are reached over https without it." placeholder:"CIDR"`
}
