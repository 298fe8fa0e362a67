//go:build unix

package cli

import (
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
)

// stopGroup asks a program's whole process group to end.
func stopGroup(leader *os.Process) { _ = syscall.Kill(-leader.Pid, syscall.SIGTERM) }

// killGroup kills the whole group.
func killGroup(leader *os.Process) { _ = syscall.Kill(-leader.Pid, syscall.SIGKILL) }

// wardenScript reads on standard input which process groups exist. However the agent ends, kill -9 included, the kernel
// closes the pipe, and the script kills the groups that are left.
const wardenScript = `
trap '' INT TERM HUP QUIT
groups=
while read -r what id; do
	case $what in
	watch) groups="$groups $id" ;;
	forget)
		left=
		for g in $groups; do [ "$g" = "$id" ] || left="$left $g"; done
		groups=$left ;;
	esac
done
for g in $groups; do kill -9 "-$g"; done
`

// warden is a process that kills whatever would outlive the agent. A nil warden does nothing.
type warden struct {
	cmd *exec.Cmd

	mu   sync.Mutex
	pipe *os.File
}

func newWarden() (*warden, error) {
	in, pipe, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make a pipe: %w", err)
	}
	defer in.Close()
	w := &warden{cmd: exec.Command("/bin/sh", "-c", wardenScript, "getwork-agent"), pipe: pipe}
	w.cmd.Stdin, w.cmd.Dir = in, "/"
	w.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // Ctrl-C in the terminal must not end it
	if err := w.cmd.Start(); err != nil {
		pipe.Close()
		return nil, fmt.Errorf("start /bin/sh: %w", err)
	}
	return w, nil
}

func (w *warden) watch(group int)  { w.say("watch", group) }
func (w *warden) forget(group int) { w.say("forget", group) }

func (w *warden) say(what string, group int) {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	_, _ = fmt.Fprintln(w.pipe, what, group)
}

// close ends the warden. By then it watches no group any more.
func (w *warden) close() {
	if w == nil {
		return
	}
	w.pipe.Close()
	_ = w.cmd.Wait()
}
