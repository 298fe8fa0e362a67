package torture

import (
	"context"
	"net"
	"testing"
	"time"

	"getwork/cmd/internal/node"
	"getwork/schema/schematest"
	"getwork/schema/schematest/timeout"
)

// A node that does not answer does not keep the run from ending.
func TestRescuedOfWhoIsSilent(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	s := &stage{members: []*member{{node: &node.Node{URL: "http://" + silent.Addr().String()}}}}
	ctx, cancel := context.WithTimeout(t.Context(), timeout.Scale(30*time.Second))
	defer cancel()
	if _, known := s.rescued(ctx); known || ctx.Err() != nil {
		t.Errorf("known: %t; the run: %v", known, ctx.Err())
	}
}
