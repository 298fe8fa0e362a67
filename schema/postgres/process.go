package postgres

import (
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// watched runs a program as our direct child, and beside it a shell that waits until our end of a pipe is closed.
// The kernel closes the pipe however this process ends, kill -9 included. The shell then ends the program, and
// deletes the program's own folders.
//
// The pipe has to be moved to descriptor 3, because a shell gives its background jobs /dev/null as standard
// input. $$ is the first shell's id also in the background one, and by exec the program's. A word on the pipe
// says that the program has ended and was waited for. Its id may then belong to another process, so nothing is
// killed. A zombie counts as ended, because not every container has an init that collects it.
const watched = `
exec 3<&0 </dev/null
first=$1; second=$2; shift 2
alive() {
	kill -0 $$ || return 1
	case $(cat /proc/$$/stat) in *') Z '*) return 1 ;; esac
	return 0
}
await() {
	n=0
	while alive && [ $n -lt 100 ]; do sleep 0.1; n=$((n + 1)); done
}
(
	exec >/dev/null 2>&1
	trap '' INT TERM HUP QUIT
	cd /
	if read -r word <&3; then exit 0; fi
	for signal in INT QUIT KILL; do
		if alive; then kill -$signal $$; await; fi
	done
	[ -z "$first" ] || rm -rf "$first"
	[ -z "$second" ] || rm -rf "$second"
) &
exec 3<&-
exec "$@"
`

// process is a program under the watch of a shell.
type process struct {
	cmd  *exec.Cmd
	tail *tail
	done chan struct{} // closed when the program has ended and was collected
	err  error         // how it ended; read it only after done
}

// launch starts a program under the given account, with an extended environment. Its output goes to log, and the end of the
// output to the process's tail. The folders in remove, at most two, are deleted if this process dies before the program.
func launch(as *account, dir string, remove []string, log io.Writer, more []string, program string, args ...string) (*process, error) {
	folders := make([]string, 2)
	copy(folders, remove)
	hold, pipe, err := watchPipe()
	if err != nil {
		return nil, err
	}
	defer pipe.Close()
	p := &process{tail: new(tail), done: make(chan struct{})}
	argv := append([]string{"-c", watched, "getwork-postgres", folders[0], folders[1], program}, args...)
	p.cmd = exec.Command("/bin/sh", argv...)
	p.cmd.Stdin = pipe
	out := io.Writer(p.tail)
	if log != nil {
		out = io.MultiWriter(p.tail, log)
	}
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.Dir = dir
	p.cmd.Env = append(environment(), more...)
	// A session of its own: Ctrl-C in the terminal must not end the server before its clients.
	p.cmd.SysProcAttr = sysProcAttr(as)
	// A backend that outlives its postmaster for a moment keeps the output open.
	p.cmd.WaitDelay = 5 * time.Second
	if err := p.cmd.Start(); err != nil {
		hold.Close()
		return nil, err
	}
	go func() {
		p.err = p.cmd.Wait()
		hold.WriteString("ended\n")
		hold.Close()
		close(p.done)
	}()
	return p, nil
}

// watchPipe returns our end, which no other process inherits, and the shell's.
func watchPipe() (hold, pipe *os.File, err error) {
	pipe, hold, err = os.Pipe()
	return hold, pipe, err
}

// environment returns ours, without variables that would make PostgreSQL use another data directory or language.
// Its messages are searched, and shown, in English.
func environment() []string {
	env := make([]string, 0, 32)
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "PG") && !strings.HasPrefix(v, "LC_") && !strings.HasPrefix(v, "LANG") {
			env = append(env, v)
		}
	}
	return append(env, "LC_ALL=C")
}

// tailSize is enough for the last messages of a server that did not start.
const tailSize = 4 << 10

// tail keeps the last bytes written to it.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p...)
	if over := len(t.buf) - tailSize; over > 0 {
		t.buf = append(t.buf[:0], t.buf[over:]...)
	}
	return len(p), nil
}

// reason returns the line that best says why a program ended: the last one with an error, else the last.
func (t *tail) reason() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	lines := strings.Split(strings.TrimSpace(string(t.buf)), "\n")
	for i := len(lines) - 1; i >= 0; i-- {
		for _, mark := range []string{"FATAL:", "PANIC:", "error:"} {
			if at := strings.Index(lines[i], mark); at >= 0 {
				return strings.TrimSpace(lines[i][at+len(mark):])
			}
		}
	}
	return strings.TrimSpace(lines[len(lines)-1])
}
