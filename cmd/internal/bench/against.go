package bench

import (
	"context"
	"fmt"
	"math"
	"time"
)

func againstFigures(*Env) []*Figure {
	var all []*Figure
	for _, users := range []int{64, 256} {
		for _, part := range []struct{ key, name string }{{"database", "The database's"}, {"node", "The node's"}} {
			key := fmt.Sprintf("against_%d_cpu_%s", users, part.key)
			name := part.name + " CPU for a click, %s, " + fmt.Sprintf("%d users", users)
			all = append(all, &Figure{Key: key, Name: fmt.Sprintf(name, "this program to the other one"), Unit: "x", Goal: atMost(1.03)},
				&Figure{Key: key + "_noise", Name: fmt.Sprintf(name, "the same program twice"), Unit: "x"})
		}
	}
	return all
}

// against compares the CPU per click of this program with that of another. Each round takes this one, the other, the
// other again and this one again, so that a machine that gets slower or faster meanwhile favours neither. The
// difference of each program from itself shows the machine's noise.
func against(ctx context.Context, r *rounds) error {
	other := *r.Env
	other.Binary = r.Against
	for range r.each() {
		for _, users := range []int{64, 256} {
			var costs [4]cost
			for i, e := range []*Env{r.Env, &other, &other, r.Env} {
				var err error
				l := freshLoad{users: users, nodes: 1, items: sized(e, 100_000, 400_000), window: sized(e, 2*time.Second, 10*time.Second)}
				if costs[i], err = e.freshClicks(ctx, l); err != nil {
					return err
				}
			}
			key := fmt.Sprintf("against_%d_cpu_", users)
			r.addABBA(key+"database", costs[0].database, costs[1].database, costs[2].database, costs[3].database)
			r.addABBA(key+"node", costs[0].nodes, costs[1].nodes, costs[2].nodes, costs[3].nodes)
		}
	}
	return nil
}

// addABBA adds the values of one round: this program's first, the other's two and this one's second. A value of 0 is
// unknown, as the database's is if the server is on another machine.
func (r *rounds) addABBA(key string, a, b, b2, a2 float64) {
	if min(a, b, b2, a2) == 0 {
		return
	}
	r.add(key, (a+a2)/(b+b2))
	r.add(key+"_noise", b2/b)
	r.add(key+"_noise", a2/a)
	var off []float64
	for _, v := range r.figure(key + "_noise").Values {
		off = append(off, math.Abs(v-1))
	}
	noise := quantile(off, 0.5)
	r.figure(key).Noise = &noise
}
