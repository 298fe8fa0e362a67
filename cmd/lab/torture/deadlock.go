package torture

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// postgresLog is the server's log in the run's folder.
const postgresLog = "postgres.log"

// deadlocks returns what PostgreSQL's log says of each two transactions that waited for each other, so that it ended one of them.
func deadlocks(log string) (all []string) {
	const says, most = "ERROR:  deadlock detected", 14
	lines := strings.Split(log, "\n")
	for i, line := range lines {
		if !strings.Contains(line, says) {
			continue
		}
		all = append(all, strings.Join(lines[i:min(len(lines), i+most)], "\n"))
	}
	return all
}

// lookForDeadlocks adds a finding for each. Locks are taken in one order, so there are none.
func (s *stage) lookForDeadlocks() error {
	text, err := os.ReadFile(filepath.Join(s.dir, postgresLog))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read PostgreSQL's log: %w", err)
	}
	for _, d := range deadlocks(string(text)) {
		s.findings.add("deadlock", "two transactions waited for each other:\n%s", d)
	}
	return nil
}
