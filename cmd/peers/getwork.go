package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	getworkbench "getwork/cmd/internal/bench"
	"getwork/cmd/internal/bench/stage"
)

// getwork is getwork itself, at the version of this checkout: its own bench measures what its programs do in bulk, in the same minutes as
// the peers. Unlike them it has a node, whose CPU is counted as the client's is of a peer.
type getwork struct{ dir, binary string }

// buildGetwork builds the executable into a temporary folder.
func buildGetwork(ctx context.Context) (*getwork, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "getwork").Output()
	if err != nil {
		return nil, fmt.Errorf("find getwork's source: %w", err)
	}
	dir, err := os.MkdirTemp("", "getwork-peers-bin-")
	if err != nil {
		return nil, fmt.Errorf("make a folder: %w", err)
	}
	g := &getwork{dir, filepath.Join(dir, "getwork")}
	if out, err := exec.CommandContext(ctx, "go", "-C", strings.TrimSpace(string(out)), "build", "-o", g.binary, "./cmd/getwork").CombinedOutput(); err != nil {
		_ = os.RemoveAll(dir)
		return nil, fmt.Errorf("build getwork: %w: %s", err, lastLines(string(out), 3))
	}
	return g, nil
}

func (g *getwork) remove(log func(format string, args ...any)) {
	if err := os.RemoveAll(g.dir); err != nil {
		log("remove %s: %v", g.dir, err)
	}
}

// measure adds one value to each of getwork's figures. A brief run has fewer items.
func (b *bench) measureGetwork(ctx context.Context, g *getwork) error {
	e := &stage.Env{Binary: g.binary, DatabaseURL: b.url, ServerPID: b.postmaster, Rounds: 1, Quick: b.seconds < 1}
	i := slices.IndexFunc(getworkbench.All, func(m getworkbench.Measurement) bool { return m.Name == "bulk" })
	figures, err := getworkbench.All[i].Run(ctx, e)
	if err != nil {
		return err
	}
	for _, f := range figures {
		b.report.figure("getwork_"+f.Key, "getwork: "+f.Name, f.Unit, f.Values[0])
	}
	return nil
}
