package command

import (
	"fmt"
	"os"
	"strings"
)

// SecretFile is the path of a file that holds one secret, such as a mounted one.
type SecretFile string

// AfterApply warns of a file that everybody on the machine can read. A mounted secret may have such a mode, so it is no error. If the
// environment names the file, each command's flag gets it, also of those that do not run.
func (f SecretFile) AfterApply(s *Streams) error {
	if is, err := os.Stat(string(f)); f != "" && err == nil && is.Mode().IsRegular() && is.Mode().Perm()&0o004 != 0 {
		s.Warn(fmt.Sprintf("getwork: every user of this machine can read %s; `chmod 600` keeps the secret in it", f))
	}
	return nil
}

// Read returns the secret; flag is the flag that names the file. Its errors are usage errors, and say nothing of the content.
func (f SecretFile) Read(flag string) (string, error) {
	b, err := os.ReadFile(string(f))
	if err != nil {
		return "", Usage("--%s: %v", flag, err)
	}
	text := strings.TrimSpace(string(b))
	if text == "" || strings.ContainsAny(text, "\r\n") {
		return "", Usage("--%s: %s must hold one line, and nothing else", flag, f)
	}
	return text, nil
}
