package agent

import (
	"context"
	"slices"
	"time"

	"getwork/assign"
	"getwork/ws/client"
)

// settings are the task's, as they were last read.
func (s *session) settings() assign.Task {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.task
}

// readSettings reads the task, unless it was read recently.
func (s *session) readSettings(ctx context.Context, within time.Duration) error {
	s.mu.Lock()
	fresh := within > 0 && time.Since(s.readTask) < within
	s.mu.Unlock()
	if fresh {
		return nil
	}
	return s.readSettingsBy(ctx, s.server.Client)
}

func (s *session) readSettingsBy(ctx context.Context, c *client.Client) error {
	names := s.Any
	if len(names) == 0 {
		names = []string{s.Task}
	}
	tasks := make(map[string]assign.Task, len(names))
	var all assign.Task
	for i, name := range names {
		t, err := c.ShowTask(ctx, name)
		if err != nil {
			return err
		}
		if tasks[name] = t; i == 0 {
			all = t
			continue
		}
		if all.Query == "" {
			all.Query = t.Query
		}
		if t.Lease != nil && (all.Lease == nil || *t.Lease < *all.Lease) {
			all.Lease = t.Lease
		}
		all.MaxRequest = max(all.MaxRequest, t.MaxRequest)
	}
	s.mu.Lock()
	s.task, s.tasks, s.readTask = all, tasks, time.Now()
	s.mu.Unlock()
	return nil
}

// warnOfCodes says which tasks will refuse what the agent gives back without a code.
func (s *session) warnOfCodes() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, t := range s.tasks {
		if t.RequireCode && !slices.ContainsFunc(t.Outcomes, func(o assign.Outcome) bool { return o.Code == s.ReturnCode && o.Do == "return" }) {
			s.Log.Warn("the task asks for a code, and the agent has none for what it gives back: that fails, and uses an attempt", "task", name, "return_code", s.ReturnCode)
		}
	}
}

// settingsOf are the settings of one of the tasks, as they were last read.
func (s *session) settingsOf(task string) assign.Task {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t, ok := s.tasks[task]; ok {
		return t
	}
	return s.task
}

const (
	shortLinger = 10 * time.Second
	longLinger  = 10 * time.Minute
)

// linger returns how long a request waits. A killed agent's request goes on waiting, and its work is held until the lease is
// over, so an inbox's requests do not wait much longer than a lease. If there is a query, each new request may run it, so a
// longer wait is cheaper.
func (s *session) linger() time.Duration {
	t := s.settings()
	switch {
	case s.Linger > 0:
		return s.Linger
	case !t.Inbox():
		return longLinger
	case t.Lease != nil:
		return min(max(time.Duration(*t.Lease), shortLinger), longLinger)
	}
	return min(max(s.Lease, shortLinger), longLinger)
}
