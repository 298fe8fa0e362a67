package postgres

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// ensureData makes the data directory if it is missing, and finds the programs for an existing one: no other
// major version can read its data.
func (s *Server) ensureData(ctx context.Context) error {
	text, err := os.ReadFile(filepath.Join(s.data(), "PG_VERSION"))
	if err == nil {
		major, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			return fmt.Errorf("%s: PG_VERSION: %w", s.data(), err)
		}
		if s.binaries, err = findMajor(major); err != nil {
			return fmt.Errorf("%s: %w: install it, or choose a new folder", s.cfg.Dir, err)
		}
		return nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if s.binaries == (Binaries{}) {
		if s.binaries, err = s.cfg.find(); err != nil {
			return err
		}
	}
	return s.initialise(ctx)
}

// initialise makes the data directory under another name and renames it when it is complete. It deletes the
// rest of an interrupted attempt.
func (s *Server) initialise(ctx context.Context) error {
	passwordFile := filepath.Join(s.cfg.Dir, "password")
	if err := os.WriteFile(passwordFile, []byte(s.state.Password+"\n"), 0o600); err != nil {
		return err
	}
	defer os.Remove(passwordFile)
	if err := s.account.give(passwordFile); err != nil {
		return err
	}
	making := s.data() + ".init"
	// Not every system has C.UTF-8; where it is missing, C sorts the same and only knows fewer letters.
	var err error
	for _, locale := range []string{"--locale=C.UTF-8", "--no-locale"} {
		if err := os.RemoveAll(making); err != nil {
			return err
		}
		if err = s.initdb(ctx, making, passwordFile, locale); err == nil {
			return rename(making, s.data())
		}
		if ctx.Err() != nil {
			break
		}
	}
	return err
}

func (s *Server) initdb(ctx context.Context, dir, passwordFile, locale string) error {
	args := []string{
		"--pgdata=" + dir, "--username=" + Superuser, "--encoding=UTF8", locale,
		"--auth-local=trust", "--auth-host=scram-sha-256", "--pwfile=" + passwordFile,
	}
	if s.cfg.Fast {
		args = append(args, "--no-sync")
	}
	p, err := launch(s.account, s.cfg.Dir, s.throwaways(), s.cfg.Log, s.environment(), s.binaries.initdb(), args...)
	if err != nil {
		return fmt.Errorf("initdb: %w", err)
	}
	select {
	case <-p.done:
	case <-ctx.Done():
		p.end(ctx, fastShutdown)
		return fmt.Errorf("initdb: %w", ctx.Err())
	}
	if p.err != nil {
		return fmt.Errorf("initdb: %w: %s", p.err, p.tail.reason())
	}
	return nil
}
