package serve

import (
	"errors"
	"strings"
	"testing"
	"time"

	"getwork/cmd/internal/command"
	"getwork/web/grants"
)

// withLogIn returns settings for --auth oidc that are right.
func withLogIn(t *testing.T) Identity {
	t.Helper()
	return Identity{Auth: "oidc", PublicURL: "http://127.0.0.1:0", LogIn: LogIn{OIDCIssuer: "https://idp.example", OIDCClientID: "getwork",
		OIDCClientSecretFile: secretFile(t, "0123456789abcdef\n"), OIDCScopes: "openid profile", OIDCNameClaim: "preferred_username", OIDCGroupsClaim: "groups",
		OIDCStale: time.Hour, Grant: []string{"worker=desk"}, TaskGroups: "all", SessionIdle: 30 * time.Minute, SessionMax: 10 * time.Hour}}
}

// Each wrong setting of --auth oidc is refused with one line.
func TestLogInFlags(t *testing.T) {
	t.Parallel()
	if _, err := checked("127.0.0.1:0", withLogIn(t)); err != nil {
		t.Fatalf("right settings: %v", err)
	}
	for _, tt := range []struct {
		says   string
		change func(*Identity)
	}{
		{"needs --public-url", func(i *Identity) { i.PublicURL = "" }},
		{"needs --oidc-issuer, --oidc-client-id and", func(i *Identity) { i.OIDCIssuer = "" }},
		{"needs --oidc-issuer, --oidc-client-id and", func(i *Identity) { i.OIDCClientID = "" }},
		{"needs --oidc-issuer, --oidc-client-id and", func(i *Identity) { i.OIDCClientSecretFile = "" }},
		{"no such file", func(i *Identity) { i.OIDCClientSecretFile = "/nowhere/secret" }},
		{"at least 16 characters", func(i *Identity) { i.OIDCClientSecretFile = secretFile(t, "") }},
		{"at least 16 characters", func(i *Identity) { i.OIDCClientSecretFile = secretFile(t, "0123456789abcde\n") }},
		{"at least 16 characters", func(i *Identity) { i.OIDCClientSecretFile = secretFile(t, "0123456789abcdef\nx\n") }},
		{"one line, or two", func(i *Identity) { i.OIDCClientSecretFile = secretFile(t, strings.Repeat("0123456789abcdef\n", 3)) }},
		{"needs --grant", func(i *Identity) { i.Grant = nil }},
		{"needs --grant", func(i *Identity) { i.Grant = []string{"\n"} }},
		{"ROLE is one of", func(i *Identity) { i.Grant = []string{"king=desk"} }},
		{"ROLE is one of", func(i *Identity) { i.Grant = []string{"worker=desk\nking=desk"} }},
		{"--session-idle must be from 5m", func(i *Identity) { i.SessionIdle = 4 * time.Minute }},
		{"--session-idle must be from 5m", func(i *Identity) { i.SessionIdle, i.SessionMax = 13*time.Hour, 24*time.Hour }},
		{"--session-max must be from --session-idle", func(i *Identity) { i.SessionMax = 29 * time.Minute }},
		{"to 24h", func(i *Identity) { i.SessionMax = 25 * time.Hour }},
		{"--oidc-stale must be", func(i *Identity) { i.OIDCStale = time.Second }},
		{"--oidc-name-claim", func(i *Identity) { i.OIDCNameClaim = "a..b" }},
		{"--oidc-groups-claim", func(i *Identity) { i.OIDCGroupsClaim = "" }},
		{"--oidc-ca-file: open", func(i *Identity) { i.OIDCCAFile = "/nowhere/ca.pem" }},
		{"has no certificate in PEM", func(i *Identity) { i.OIDCCAFile = i.OIDCClientSecretFile }},
		{"--proxy-max is for --auth proxy", func(i *Identity) { i.ProxyMax = time.Minute }},
		{"--token-max must be from 1h to 8784h", func(i *Identity) { i.Tokens = Tokens{8785 * time.Hour, time.Hour} }},
		{"--token-max must be from 1h to 8784h", func(i *Identity) { i.Tokens = Tokens{time.Second, time.Hour} }},
		{"--token-owner-within must be from 1h", func(i *Identity) { i.Tokens = Tokens{time.Hour, -time.Hour} }},
		{"not for --auth dev", func(i *Identity) { *i = Identity{Tokens: Tokens{time.Hour, time.Hour}} }},
		{"--oidc-issuer is for --auth oidc", func(i *Identity) { *i = Identity{LogIn: LogIn{OIDCIssuer: "https://idp.example"}} }},
	} {
		i := withLogIn(t)
		tt.change(&i)
		_, err := checked("127.0.0.1:0", i)
		var wrong command.UsageError
		if !errors.As(err, &wrong) || !strings.Contains(err.Error(), tt.says) || strings.ContainsAny(err.Error(), "\r\n") || strings.Contains(err.Error(), "0123456789") {
			t.Errorf("%v\nwant one line with %q", err, tt.says)
		}
	}
}

// The environment has one variable for all grants, with one on each line: a group's name may have commas and blanks.
func TestGrantsOnLines(t *testing.T) {
	t.Parallel()
	i := withLogIn(t)
	i.Grant = []string{"worker=CN=desk,OU=loans\r\n\nmanager=the chiefs \n", "admin=it"}
	c, err := checked("127.0.0.1:0", i)
	if err != nil {
		t.Fatal(err)
	}
	want := []grants.Grant{{Role: "worker", Group: "CN=desk,OU=loans"}, {Role: "manager", Group: "the chiefs "}, {Role: "admin", Group: "it"}}
	for n, g := range c.rules.Grants {
		if len(c.rules.Grants) != len(want) || g != want[n] {
			t.Fatalf("grants %q, want %q", c.rules.Grants, want)
		}
	}
}
