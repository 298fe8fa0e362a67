package notify

import (
	"testing"
	"time"
)

func TestPulseJudgesOnlySilenceAfterAnEcho(t *testing.T) {
	const silent, grace = 15 * time.Second, 5 * time.Second
	start := time.Now()
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	for _, c := range []struct {
		name string
		tell func(*pulse)
		dead int // seconds from the start; -1: never
	}{
		{"no echo could be sent", func(*pulse) {}, -1},
		{"first echo unanswered", func(p *pulse) { p.sent(at(1), at(1)) }, 15},
		{"later echoes give no more time", func(p *pulse) { p.sent(at(5), at(5)); p.sent(at(10), at(10)) }, 15},
		{"answered", func(p *pulse) { p.sent(at(5), at(5)); p.hear(at(6)) }, -1},
		{"answered, next one not", func(p *pulse) { p.sent(at(5), at(5)); p.hear(at(6)); p.sent(at(10), at(10)) }, 21},
		{"answer overtook the sender", func(p *pulse) { p.hear(at(6)); p.sent(at(5), at(7)) }, -1},
		{"first echo after a long outage of the sender", func(p *pulse) { p.sent(at(100), at(101)) }, 106},
	} {
		t.Run(c.name, func(t *testing.T) {
			var p pulse
			p.hear(start)
			c.tell(&p)
			dead, owed := p.deadline(silent, grace)
			if owed != (c.dead >= 0) {
				t.Fatalf("an answer is owed: %v", owed)
			}
			if owed && !dead.Equal(at(c.dead)) {
				t.Errorf("dead after %s, want %d s", dead.Sub(start), c.dead)
			}
		})
	}
}
