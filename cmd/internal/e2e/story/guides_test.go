package story

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"getwork/cmd/internal/cluster"
	"getwork/schema/schematest"
)

// The commands of the guides are typed as they stand there, one guide on one node, with a small bank.
func TestGuides(t *testing.T) {
	t.Parallel()
	for guide, least := range map[string]int{"api": 7, "ranking-query": 6, "webhooks": 8} {
		t.Run(guide, func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(filepath.Join("../../../../docs", guide+".md"))
			if err != nil {
				t.Fatal(err)
			}
			site := newSite(t, 1, schematest.URL(t))
			site.Exec(`create schema bank`)
			site.Exec(`create table bank.loan as select i as loan_id, i * 100000 as amount, now() + i * interval '1 day' as submitted_at from generate_series(1, 20) i`)
			s := shell{t: t, dir: t.TempDir(), url: site.Nodes[0].URL, binary: cluster.Binary(t)}
			typed := 0
			for _, part := range regexp.MustCompile("(?s)```yaml\nname: ([a-z-]+)\n(.*?)```|(?m)^    [a-z][^\n]*$").FindAllStringSubmatch(string(text), -1) {
				if part[1] != "" { // a file, as it is at this place of the guide
					if err := os.WriteFile(filepath.Join(s.dir, part[1]+".yaml"), []byte("name: "+part[1]+"\n"+part[2]), 0o600); err != nil {
						t.Fatal(err)
					}
					continue
				}
				s.typed(strings.TrimSpace(part[0]))
				typed++
			}
			if typed < least {
				t.Errorf("%d commands typed; the guide has lost some", typed)
			}
		})
	}
}
