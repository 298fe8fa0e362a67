package serve

import (
	"crypto/x509"
	"os"
	"strings"
	"time"

	"getwork/cmd/internal/command"
	"getwork/web/grants"
	"getwork/web/identity/oidc"
)

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
	look    time.Duration // how often sessions are looked at; 0: as often as is good
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
