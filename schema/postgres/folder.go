package postgres

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
)

const (
	stateFile = "postgres.json"
	newSuffix = ".new" // while it is being written

	// socketPort is only part of the socket's name when nothing listens on TCP.
	socketPort = 5432

	// longestSocket is below the 104 bytes that a socket's path may have on macOS (108 on Linux), with
	// the lock file's name beside it.
	longestSocket = 100
)

// state is the content of a folder's postgres.json.
type state struct {
	Port      int    `json:"port"`
	SocketDir string `json:"socket_dir"`
	Password  string `json:"password"`

	LoginPassword string `json:"login_password"`

	formerSocketDir string // left by an owner that was killed; to delete once its server is gone
}

// claimDir makes the folder, or checks that it is one of ours, and locks it.
func claimDir(dir string) (*os.File, error) {
	if err := makeParent(filepath.Dir(dir)); err != nil {
		return nil, err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	lock, err := lockDir(dir)
	if err != nil {
		return nil, err
	}
	if err := checkOurs(dir); err != nil {
		lock.Close()
		return nil, err
	}
	// PostgreSQL trusts every user that can reach the socket, so no other user may.
	if err := os.Chmod(dir, 0o700); err != nil {
		lock.Close()
		return nil, err
	}
	return lock, nil
}

// makeParent makes a folder that is missing, and those above it. Root's server runs as another user, who must be able to enter them
// whatever root's umask is.
func makeParent(dir string) error {
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := makeParent(filepath.Dir(dir)); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		if errors.Is(err, fs.ErrExist) { // another process has made it meanwhile
			return nil
		}
		return err
	}
	if os.Geteuid() != 0 {
		return nil
	}
	return os.Chmod(dir, 0o755)
}

// ErrInUse means that another process has a server in the folder.
var ErrInUse = errors.New("is in use by another process")

// checkOurs refuses a folder with other things in it, which would be taken over, or deleted.
func checkOurs(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	if len(entries) == 0 {
		return nil
	}
	for _, entry := range entries {
		if entry.Name() == stateFile || entry.Name() == stateFile+newSuffix {
			return nil
		}
	}
	return fmt.Errorf("%s has other things in it: choose a new or empty folder", dir)
}

// loadState reads the folder's state, or makes a new one and saves it. If another program has taken the TCP port
// meanwhile, it chooses a new one.
func loadState(dir string, tcp bool) (state, error) {
	var s state
	text, err := os.ReadFile(filepath.Join(dir, stateFile))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		s.Password = rand.Text()
	case err != nil:
		return state{}, err
	default:
		if err := json.Unmarshal(text, &s); err != nil {
			return state{}, fmt.Errorf("%s: %w", filepath.Join(dir, stateFile), err)
		}
	}
	if s.LoginPassword == "" {
		s.LoginPassword = rand.Text()
	}
	s.SocketDir, s.formerSocketDir = socketDir(dir, s.SocketDir)
	switch {
	case tcp && (s.Port == 0 || s.Port == socketPort || !free(s.Port)):
		return s, s.newPort(dir)
	case s.Port == 0:
		s.Port = socketPort
	}
	return s, s.save(dir)
}

// socketDir returns the socket's folder: the folder itself, or, if its path is too long or has a comma, which separates
// several hosts, the remembered folder or a new name below the temporary one. A remembered one that still exists is not
// used: its server's owner was killed, and the shell that watched it is about to delete it.
func socketDir(dir, remembered string) (now, former string) {
	if len(filepath.Join(dir, ".s.PGSQL.65535.lock")) < longestSocket && !strings.Contains(dir, ",") {
		return dir, ""
	}
	if remembered != "" && remembered != dir {
		if _, err := os.Lstat(remembered); errors.Is(err, fs.ErrNotExist) {
			return remembered, ""
		}
		former = remembered
	}
	return filepath.Join(os.TempDir(), "getwork-"+rand.Text()[:10]), former
}

// newPort chooses a free port and remembers it.
func (s *state) newPort(dir string) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s.Port = l.Addr().(*net.TCPAddr).Port
	_ = l.Close()
	return s.save(dir)
}

func free(port int) bool {
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
	if err != nil {
		return false
	}
	_ = l.Close()
	return true
}

// save replaces the file as a whole, so that a reader never finds half of it, not even after a power failure.
func (s *state) save(dir string) error {
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, stateFile)
	f, err := os.OpenFile(path+newSuffix, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(text, '\n'))
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return rename(path+newSuffix, path)
}

// rename is durable when it returns.
func rename(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(to))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
