package serve

import (
	"time"

	"getwork/cmd/internal/command"
)

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
