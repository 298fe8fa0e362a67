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
	OIDCClientID         string        `name:"oidc-client-id" help:"What the provider calls this installation." placeholder:"ID"`
	OIDCClientSecretFile string        `name:"oidc-client-secret-file" help:"The client's secret, on one line; on a second line the one before, while it is changed." placeholder:"FILE" complete:"file"`
	OIDCCAFile           string        `name:"oidc-ca-file" help:"Who vouches for the certificates of the provider and of --jwt-issuer, as PEM. By default the system's authorities do." placeholder:"FILE" complete:"file"`
	OIDCScopes           string        `name:"oidc-scopes" help:"What the provider is asked for; with offline_access a session is confirmed every ten minutes (default ${default})." default:"openid profile" placeholder:"SCOPES"`
	OIDCNameClaim        string        `name:"oidc-name-claim" help:"Where a token has the user's name, as a dotted path (default ${default})." default:"preferred_username" placeholder:"CLAIM"`
	OIDCGroupsClaim      string        `name:"oidc-groups-claim" help:"Where a token has the user's groups (default ${default})." default:"groups" placeholder:"CLAIM"`
	OIDCStale            time.Duration `name:"oidc-stale" help:"How long a session outlives a provider that does not answer (default ${default})." default:"1h"`
	BackchannelNoExp     bool          `help:"Accept log-out messages without exp, as Hydra and LemonLDAP send them, for two minutes."`
	Grant                []string      `help:"Give a provider's group a role: worker, agent, observer or manager, and admin beside it. The first of a user's that matches is theirs; a user without any can't come in. Repeatable; the variable has one on each line." sep:"none" placeholder:"ROLE=GROUP"`
	TaskGroups           string        `help:"Which of the provider's groups count for tasks: all, or those with this prefix, which is cut off." default:"all" placeholder:"all|PREFIX"`
	SessionIdle          time.Duration `help:"How long a session lives without an act of its user (default ${default})." default:"30m"`
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
		return command.Usage("--auth oidc needs --grant ROLE=GROUP at least once: without it nobody can come in")
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
