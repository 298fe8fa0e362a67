package clock

import (
	"os"
	"strings"
	"syscall"
	"testing"
)

// Root's server runs as another user, who can read the library whatever root's umask is.
func TestOthersCanReadIt(t *testing.T) {
	if err := Available(); err != nil {
		t.Skip(err)
	}
	umask := syscall.Umask(0o077)
	c, err := New(t.Context())
	syscall.Umask(umask)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Remove(); err != nil {
			t.Error(err)
		}
	}()
	for _, variable := range c.Environment() {
		_, name, _ := strings.Cut(variable, "=")
		if info, err := os.Stat(name); err != nil || info.Mode()&0o004 == 0 {
			t.Errorf("%s: %v (%v)", name, info.Mode(), err)
		}
	}
}
