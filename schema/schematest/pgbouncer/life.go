package pgbouncer

import (
	"os"
	"os/exec"
	"runtime"

	"getwork/schema/schematest/logs"
)

// life is one process of PgBouncer.
type life struct {
	process *os.Process
	file    string        // its settings; it reads them once, at its start
	out     logs.Buffer   // what it has printed
	err     error         // how it ended; set before done is closed
	done    chan struct{} // closed when the process is gone and its output was read
}

// launch starts the program with the text of pgbouncer.ini.
func launch(program, ini string) (*life, error) {
	as, err := accountFor()
	if err != nil {
		return nil, err
	}
	f, err := os.CreateTemp("", "getwork-pgbouncer-*.ini")
	if err != nil {
		return nil, err
	}
	l := &life{file: f.Name(), done: make(chan struct{})}
	if _, err = f.WriteString(ini); err == nil {
		err = as.give(f.Name())
	}
	f.Close()
	if err != nil {
		l.forget()
		return nil, err
	}
	command := exec.Command(program, l.file)
	command.Dir = "/"
	command.Stdout, command.Stderr = &l.out, &l.out
	command.SysProcAttr = as.attributes()
	started := make(chan error)
	go func() {
		// The kernel kills the process when the thread that started it ends. This one lasts until the process is gone.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := command.Start()
		l.process = command.Process
		started <- err
		if err == nil {
			l.err = command.Wait()
		}
		close(l.done)
	}()
	if err := <-started; err != nil {
		l.forget()
		return nil, err
	}
	return l, nil
}

// forget removes the file of the settings.
func (l *life) forget() { os.Remove(l.file) }

// end kills the process, and returns when it is gone.
func (l *life) end() {
	_ = l.process.Kill()
	<-l.done
}
