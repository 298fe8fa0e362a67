package torture

import (
	"context"
	"math/rand/v2"
	"net/http"

	"getwork/cmd/lab/torture/history"
)

// limit makes the first limits over all tasks.
func (s *stage) limit(ctx context.Context) error { return s.limitTo(ctx, 3) }

// limitTo limits people, and one of the programs.
func (s *stage) limitTo(ctx context.Context, most int) error {
	boss := caller{stage: s, who: history.Who{User: "boss"}, role: "manager"}
	return boss.insist(ctx, request{method: http.MethodPut, path: "/api/v1/limits", header: []string{"If-Match", "*"},
		body: map[string]any{"everybody": most, "people": map[string]any{"agent-00": most + 1}}})
}

// relimit lowers the limits, or raises them again. A node that is down, or another change, leaves them as they are.
func (s *storm) relimit(ctx context.Context, rng *rand.Rand) { _ = s.limitTo(ctx, 2+rng.IntN(2)) }
