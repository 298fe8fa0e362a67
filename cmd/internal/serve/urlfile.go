package serve

import (
	"os"
	"strings"

	"getwork/cmd/internal/command"
)

// ReadURL reads a database's URL from a file, if a flag names one. A URL often holds a password, and everybody on the
// machine may read command lines.
func ReadURL(url *string, file, flag string) error {
	if file == "" {
		return nil
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return command.Usage("--%s: %v", flag, err)
	}
	text := strings.TrimSpace(string(b))
	if text == "" || strings.ContainsAny(text, "\r\n") {
		return command.Usage("--%s: %s must hold one URL, such as postgres://getwork@db.bank.example/work, and nothing else", flag, file)
	}
	*url = text
	return nil
}
