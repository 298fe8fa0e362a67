package patroni

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"

	"getwork/schema/postgres"
)

// programs are the paths of a cluster's programs.
type programs struct {
	etcd, patroni, haproxy string
	postgres               string // the folder of its programs
	account                *syscall.Credential
}

// find looks for all programs. Its error says what to install.
func find() (p programs, err error) {
	if runtime.GOOS != "linux" {
		return p, errors.New("fail-over is tested on Linux only")
	}
	for name, path := range map[string]*string{"etcd": &p.etcd, "patroni": &p.patroni, "haproxy": &p.haproxy} {
		// Debian installs HAProxy in a folder that is only in root's path.
		if *path, err = exec.LookPath(name); err != nil {
			if *path, err = exec.LookPath("/usr/sbin/" + name); err != nil {
				return p, fmt.Errorf("no %s: apt-get install patroni python3-etcd etcd-server haproxy postgresql", name)
			}
		}
	}
	binaries, err := postgres.Find()
	if err != nil {
		return p, err
	}
	// Resolve links: in a folder with links to some of the programs Patroni would miss the others.
	program, err := filepath.EvalSymlinks(filepath.Join(binaries.Dir, "postgres"))
	if err != nil {
		return p, err
	}
	p.postgres = filepath.Dir(program)
	p.account, err = account()
	return p, err
}

// account returns the user for the processes if the test runs as root, as which PostgreSQL refuses to run. It returns
// nil for the test's own user.
func account() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, errors.Join(err1, err2)
	}
	return nil, errors.New("root's PostgreSQL runs as the user postgres or nobody, and neither exists")
}

// give makes the account the owner of a file or folder.
func (p programs) give(path string) error {
	if p.account == nil {
		return nil
	}
	return os.Chown(path, int(p.account.Uid), int(p.account.Gid))
}
