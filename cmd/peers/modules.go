package main

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
)

//go:embed *.mjs package.json package-lock.json
var scripts embed.FS

// modules are the peers that run on Node.js, in a temporary folder.
type modules struct{ node, dir string }

var (
	errNoNode  = errors.New("node is not installed: they need Node.js 20 or newer, with npm")
	errOldNode = errors.New("node is too old: they need Node.js 20 or newer")
	errNoNPM   = errors.New("npm, which fetches them, is not installed")
)

// installModules fetches them as package-lock.json says. It runs none of their install scripts.
func installModules(ctx context.Context) (_ *modules, err error) {
	node, err := exec.LookPath("node")
	if err != nil {
		return nil, errNoNode
	}
	if exec.CommandContext(ctx, node, "-e", "process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)").Run() != nil {
		return nil, errOldNode
	}
	npm, err := exec.LookPath("npm")
	if err != nil {
		return nil, errNoNPM
	}
	dir, err := os.MkdirTemp("", "getwork-peers-npm-")
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	if err := copyScripts(dir); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	install := exec.CommandContext(ctx, npm, "ci", "--prefer-offline", "--ignore-scripts", "--engine-strict=false", "--no-audit", "--no-fund", "--loglevel=error")
	install.Dir = dir
	install.WaitDelay = cleanUpWithin
	if out, err := install.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("npm ci failed (%w): %s", err, lastLines(string(out), 5))
	}
	return &modules{node: node, dir: dir}, nil
}

func copyScripts(dir string) error {
	names, err := fs.Glob(scripts, "*")
	if err != nil {
		return err
	}
	for _, name := range names {
		text, err := scripts.ReadFile(name)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			return err
		}
	}
	return nil
}

func (m *modules) remove(log func(string, ...any)) {
	if err := os.RemoveAll(m.dir); err != nil {
		log("remove the modules that npm fetched: %v", err)
	}
}

// client returns the command of a peer's client process.
func (m *modules) client(script string) []string {
	return []string{m.node, filepath.Join(m.dir, script)}
}
