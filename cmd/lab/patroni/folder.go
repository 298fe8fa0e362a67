package patroni

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"getwork/schema/postgres"
)

// memory is a folder that Linux keeps in memory.
const memory = "/dev/shm"

// folder is the working folder of a cluster's processes, by which they are found: Patroni puts its server into a
// session of its own, and the server its backends, but all of them stay below the folder.
type folder struct {
	path    string
	account *syscall.Credential
	end     func() error // kills the processes, and deletes the folder
}

// watched is a shell script: when its standard input ends, it kills the processes that work below a folder until none
// is left, and deletes the folder. It reads a process's working folder from /proc; a process that has ended has none.
const watched = `
trap '' INT TERM HUP QUIT
cd /
read -r word
found=yes
while [ -n "$found" ]; do
	found=
	for process in /proc/[0-9]*; do
		case $(readlink "$process/cwd") in
		"$1"|"$1"/*|"$1 (deleted)") found=yes; kill -KILL "${process#/proc/}" ;;
		esac
	done
	[ -z "$found" ] || sleep 0.02
done
rm -rf "$1"
`

// newFolder makes a folder, and starts the script that watches it.
func newFolder(p programs) (*folder, error) {
	parent := os.TempDir()
	if info, err := os.Stat(memory); err == nil && info.IsDir() {
		parent = memory
	}
	path, err := os.MkdirTemp(parent, "getwork-patroni-")
	if err != nil {
		return nil, err
	}
	f := &folder{path: path, account: p.account}
	if err := p.give(path); err != nil {
		return nil, err
	}
	f.end, err = Watch(path, f.account)
	return f, err
}

// Watch has a shell wait for the end of this process, which may even be kill -9, or for end. Then the shell kills all processes that
// work below the folder, frozen or not, and deletes it. It runs as that account; nil is this process's own.
func Watch(folder string, as *syscall.Credential) (end func() error, err error) {
	shell := exec.Command("/bin/sh", "-c", watched, "getwork-patroni", folder)
	shell.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: as}
	hold, err := shell.StdinPipe()
	if err != nil {
		return nil, err
	}
	return func() error {
		_ = hold.Close()
		return shell.Wait()
	}, shell.Start()
}

// remove ends all processes and deletes the folder.
func (f *folder) remove() error { return f.end() }

// make makes a folder below it that belongs to the processes' account.
func (f *folder) make(p programs, name string) (string, error) {
	dir := filepath.Join(f.path, name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", err
	}
	return dir, p.give(dir)
}

// start starts a program in a folder. Its output goes to the file log in there.
func (f *folder) start(dir, program string, args ...string) error {
	log, err := os.OpenFile(filepath.Join(dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	c := exec.Command(program, args...)
	c.Dir, c.Stdout, c.Stderr, c.Env = dir, log, log, environment(dir)
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: f.account}
	if err := c.Start(); err != nil {
		return fmt.Errorf("start %s: %w", program, err)
	}
	go func() { _ = c.Wait() }() // ends with the process, whose output is a file
	return nil
}

// environment returns this process's environment without variables that would configure PostgreSQL or Patroni, or
// change their language.
func environment(home string) []string {
	var env []string
	for _, e := range os.Environ() {
		name, _, _ := strings.Cut(e, "=")
		for _, not := range []string{"PG", "PATRONI_", "ETCD_", "LC_", "LANG", "HOME"} {
			if strings.HasPrefix(name, not) {
				name = ""
			}
		}
		if name != "" {
			env = append(env, e)
		}
	}
	return append(env, "LC_ALL=C.UTF-8", "HOME="+home, postgres.HugePages)
}

// processes returns the ids of all processes that work in a folder or below.
func processes(dir string) []int {
	var ids []int
	entries, _ := filepath.Glob("/proc/[0-9]*")
	for _, process := range entries {
		at, err := os.Readlink(process + "/cwd")
		if err != nil || at != dir && !strings.HasPrefix(at, dir+"/") {
			continue
		}
		if id, err := strconv.Atoi(filepath.Base(process)); err == nil {
			ids = append(ids, id)
		}
	}
	return ids
}

// signal sends a signal to all processes that work in a folder, again and again until each has received it, since a
// process may start another meanwhile. After a kill it returns when no process is left.
func signal(dir string, s syscall.Signal) {
	had := map[int]bool{}
	for missed := true; missed; {
		missed = false
		for _, id := range processes(dir) {
			if !had[id] || s == syscall.SIGKILL {
				_ = syscall.Kill(id, s)
				had[id], missed = true, true
			}
		}
		if missed && s == syscall.SIGKILL {
			time.Sleep(time.Millisecond) // the kernel needs a moment
		}
	}
}
