package torture

import (
	"math"
	"math/rand/v2"
	"time"
)

// Kind is a kind of fault.
type Kind struct {
	Name        string
	Help        string
	often       int           // its weight in the draw
	least, most time.Duration // how long it lasts
	rights      bool          // it needs people who log in
	hooks       bool          // it needs a receiver of web hooks
	strike      func(*storm, planned)
}

// planned is one fault to come. Everything about it is drawn from the seed, independently of the run.
type planned struct {
	after  time.Duration // since the one before
	kind   Kind
	node   int           // the node to break; if it can't be spared, the next one that can
	lasts  time.Duration // if the fault lasts
	chance uint64        // decides everything else
}

// plan draws the sequence of faults.
type plan struct {
	rng   *rand.Rand
	every time.Duration
	kinds []Kind // each as often as its weight
	nodes int
}

func newPlan(o Options) *plan {
	p := &plan{rng: rand.New(rand.NewPCG(o.Seed, 1)), every: o.Every, nodes: o.Nodes}
	for _, name := range o.Faults {
		for _, k := range Kinds {
			for range k.often {
				if k.Name == name {
					p.kinds = append(p.kinds, k)
				}
			}
		}
	}
	return p
}

// next draws the next fault. It draws the same number of random values for each, so that the sequence depends only on
// the seed, the kinds and the number of nodes.
func (p *plan) next() planned {
	f := planned{after: time.Duration(p.rng.ExpFloat64() * float64(p.every))}
	f.kind = p.kinds[p.rng.IntN(len(p.kinds))]
	f.node = p.rng.IntN(p.nodes)
	f.lasts = between(p.rng.Float64(), f.kind.least, f.kind.most)
	f.chance = p.rng.Uint64()
	return f
}

// between makes short times as likely as long ones: a tenth of a second is a different case from a second, and a second
// from ten.
func between(x float64, least, most time.Duration) time.Duration {
	if least <= 0 || most <= least {
		return least
	}
	return time.Duration(float64(least) * math.Pow(float64(most)/float64(least), x))
}
