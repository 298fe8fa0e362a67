package rights

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"getwork/assign"
)

// A change that is refused changes nobody's rights: the node goes on with what it has read. Otherwise a stranger's wrong codes would have
// it read everybody's credentials anew.
func TestRefusedChangesAreQuiet(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	token, id := d.service(t, "robot", assign.RoleManager)
	d.cache.since = time.Now().Add(time.Hour) // nothing is forgotten because of its age
	quiet := func() bool {
		_, cached := d.cache.get("t:" + id)
		return cached && len(d.watch.soon) == 0
	}
	for what, change := range map[string]func() error{
		"a wrong code of a terminal": func() error {
			_, err := d.RedeemCode(t.Context(), strings.Repeat("1", idLength)+"."+strings.Repeat("2", 43), strings.Repeat("3", 43))
			return err
		},
		"a wrong link of a screen": func() error {
			_, err := d.OpenWall(t.Context(), strings.Repeat("1", 43), "", netip.Addr{}, "")
			return err
		},
		"a token that there is not": func() error { return d.EndToken(t.Context(), "none", "ada", 0) },
	} {
		if len(d.watch.soon) > 0 {
			<-d.watch.soon
		}
		if _, err := d.Token(t.Context(), token); err != nil {
			t.Fatal(err)
		}
		err := change()
		var r *assign.Refusal
		if !errors.As(err, &r) {
			t.Errorf("%s: %v", what, err)
		}
		if !quiet() {
			t.Errorf("%s: the node reads everything anew", what)
		}
	}
	if err := d.EndToken(t.Context(), id, "ada", 0); err != nil {
		t.Fatal(err)
	}
	if quiet() {
		t.Error("an end is not looked for")
	}
}
