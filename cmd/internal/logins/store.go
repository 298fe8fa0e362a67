// Package logins keeps the tokens of `getwork login` on this machine, each for the origin that gave it, and receives the code
// that a browser brings.
package logins

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// LogIn is a token of one origin.
type LogIn struct {
	Token  string    `json:"token"`
	User   string    `json:"user"`
	EndsAt time.Time `json:"ends_at"`
}

// Origin returns the scheme, host and port of an address, as browsers write them: a token goes to one origin alone.
func Origin(u *url.URL) string {
	host := strings.ToLower(u.Host)
	host = strings.TrimSuffix(host, map[string]string{"https": ":443", "http": ":80"}[u.Scheme])
	return u.Scheme + "://" + host
}

// path returns where the tokens are.
func path() (string, error) {
	dir := os.Getenv("XDG_CONFIG_HOME")
	if !filepath.IsAbs(dir) {
		var err error
		if dir, err = os.UserConfigDir(); err != nil {
			return "", fmt.Errorf("find the folder for tokens: %w; set XDG_CONFIG_HOME", err)
		}
	}
	return filepath.Join(dir, "getwork", "tokens.json"), nil
}

// private refuses a file or folder that others can read.
func private(name string, mode fs.FileMode, dir bool) error {
	switch {
	case runtime.GOOS == "windows": // has no such modes
		return nil
	case dir && mode.Perm()&0o077 != 0:
		return fmt.Errorf("others can enter %s, where your tokens are: chmod 700 %s", name, name)
	case !dir && !mode.IsRegular():
		return fmt.Errorf("%s is no plain file; remove it, and run `getwork login` again", name)
	case !dir && mode.Perm()&0o077 != 0:
		return fmt.Errorf("others can read %s, which has your tokens: chmod 600 %s, and if they may have read it, end the tokens with `getwork logout`", name, name)
	}
	return nil
}

// all reads all tokens; none if there is no file.
func all(name string) (map[string]LogIn, error) {
	tokens := map[string]LogIn{}
	is, err := os.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return tokens, nil
	}
	if err != nil {
		return nil, err
	}
	folder, err := os.Stat(filepath.Dir(name))
	if err != nil {
		return nil, err
	}
	if err := errors.Join(private(filepath.Dir(name), folder.Mode(), true), private(name, is.Mode(), false)); err != nil {
		return nil, err
	}
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(b, &tokens); err != nil || tokens == nil {
		return nil, fmt.Errorf("%s can't be read; remove it, and run `getwork login` again", name) // the error could quote a token
	}
	return tokens, nil
}

// Of returns the log-in at an origin; false if there is none.
func Of(origin string) (LogIn, bool, error) {
	name, err := path()
	if err != nil {
		return LogIn{}, false, nil // without a home nobody has logged in
	}
	tokens, err := all(name)
	if err != nil {
		return LogIn{}, false, err
	}
	l, ok := tokens[origin]
	return l, ok, nil
}

// Keep keeps a log-in; nil removes that of the origin.
func Keep(origin string, l *LogIn) error {
	name, err := path()
	if err != nil {
		return err
	}
	dir := filepath.Dir(name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	folder, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if err := private(dir, folder.Mode(), true); err != nil {
		return err
	}
	// Beside the tokens, whose own file is replaced. Without it, the second of two log-ins writes what it read before the first.
	release, err := lock(filepath.Join(dir, "tokens.lock"))
	if err != nil {
		return err
	}
	defer release()
	tokens, err := all(name)
	if err != nil {
		return err
	}
	if delete(tokens, origin); l != nil {
		tokens[origin] = *l
	}
	b, err := json.MarshalIndent(tokens, "", "  ")
	if err != nil {
		return err
	}
	// Written beside it and renamed: a program that reads now sees the old file or the new one. CreateTemp makes it for its
	// owner alone.
	f, err := os.CreateTemp(dir, "tokens-*.json")
	if err != nil {
		return err
	}
	_, err = f.Write(append(b, '\n'))
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}
