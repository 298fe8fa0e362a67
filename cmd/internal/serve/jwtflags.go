package serve

import (
	"fmt"
	"time"

	"getwork/cmd/internal/command"
	"getwork/web/identity"
	"getwork/web/identity/oidc"
)

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
