package bench

import (
	"context"
	"fmt"
	"time"

	"getwork/cmd/internal/bench/stage"
)

func pushFigures(*stage.Env) []*Figure {
	alone := &Figure{Key: "limit_notify_p50", Name: "NOTIFY alone: commit to receipt, p50", Unit: "ms"}
	return []*Figure{
		{Key: "push_p50", Name: "Commit of a round to the push on another node, p50", Unit: "ms", Limit: alone, Goal: AtMost(2.5), Note: "counted from PostgreSQL's own time of the commit"},
		{Key: "push_p99", Name: "Commit of a round to the push on another node, p99", Unit: "ms"},
	}
}

// push measures how long after a round's commit its user is notified by another node than the one that served them.
func push(ctx context.Context, r *Rounds) error {
	for range r.Each() {
		if err := r.addPushes(ctx, "", stage.Sized(r.Env, 100, 500)); err != nil {
			return err
		}
	}
	return nil
}

// addPushes adds the values of n pushes to the figures whose keys begin with a prefix.
func (r *Rounds) addPushes(ctx context.Context, prefix string, n int) error {
	return r.On(ctx, 2, func(s *stage.Stage) error {
		var stamped bool
		if err := s.Conn.QueryRow(ctx, `select current_setting('track_commit_timestamp')::bool`).Scan(&stamped); err != nil {
			return fmt.Errorf("read the server's settings: %w", err)
		}
		if stamped = stamped && s.ServerPID != 0; !stamped { // another machine's clock may differ
			f := r.Figure(prefix + "push_p50")
			f.Note = "counted from the click itself, because the time of the commit is not known: track_commit_timestamp is off, or the server is on another machine"
			f.Goal, f.Limit.Note = nil, "counted from the statement"
		}
		pushes, notices, err := pushes(ctx, s, n, stamped)
		if err != nil {
			return err
		}
		r.Add(prefix+"push_p50", Quantile(pushes, 0.5))
		r.Add(prefix+"push_p99", Quantile(pushes, 0.99))
		r.Add(prefix+"limit_notify_p50", Quantile(notices, 0.5))
		return nil
	})
}

// arrival is when the news of a committed row arrived.
type arrival struct {
	id  int64
	at  time.Time
	err error
}

// listen passes on arrivals until something fails. The channel has room for all of them.
func listen(most int, next func() (int64, error)) <-chan arrival {
	arrivals := make(chan arrival, most)
	go func() {
		for range most {
			id, err := next()
			arrivals <- arrival{id, time.Now(), err}
			if err != nil {
				return
			}
		}
	}()
	return arrivals
}

// await waits for a row's arrival. It skips others: a socket may hear of a request twice.
func await(arrivals <-chan arrival, id int64) (arrival, error) {
	late := time.After(stage.ServedWithin)
	for {
		select {
		case a := <-arrivals:
			if a.err != nil || a.id == id {
				return a, a.err
			}
		case <-late:
			return arrival{}, fmt.Errorf("no news of the row %d within %s", id, stage.ServedWithin)
		}
	}
}

const (
	makeBell = `create table getwork.bench_bell (id bigint generated always as identity primary key)`
	ringBell = `with r as (insert into getwork.bench_bell default values returning id) select id, pg_notify($1, id::text) from r`

	requestCommitted = `select pg_xact_commit_timestamp(xmin) from getwork.work_requested where id = $1`
	bellCommitted    = `select pg_xact_commit_timestamp(xmin) from getwork.bench_bell where id = $1`
)

// pushes returns the times, in ms, from a commit to the push and from a commit to a bare notification, n of each, taken
// in turn.
func pushes(ctx context.Context, s *stage.Stage, n int, stamped bool) (pushes, notices []float64, err error) {
	const task, user = "push", "somebody"
	if err := s.Shelf(ctx, task, 20_000); err != nil {
		return nil, nil, err
	}
	if err := s.Exec(ctx, "make a table", []string{makeBell}); err != nil {
		return nil, nil, err
	}
	ctx, end := context.WithCancel(ctx)
	defer end()
	socket, err := s.Socket(ctx, 1, user)
	if err != nil {
		return nil, nil, err
	}
	defer socket.Close()
	bell, err := s.Connect(ctx)
	if err != nil {
		return nil, nil, err
	}
	channel := s.Name + "_bell" // no node hears it
	if _, err := bell.Exec(ctx, "listen "+channel.Quoted()); err != nil {
		return nil, nil, fmt.Errorf("listen: %w", err)
	}
	u, err := s.User(ctx, 0, task, user, stage.WantedEach)
	if err != nil {
		return nil, nil, err
	}
	told := listen(2*n, func() (int64, error) {
		message, err := stage.ReadEnded(ctx, socket)
		if err != nil {
			return 0, err
		}
		return stage.IDOf(message)
	})
	heard := listen(n, func() (id int64, err error) {
		notice, err := bell.WaitForNotification(ctx)
		if err == nil {
			_, err = fmt.Sscan(notice.Payload, &id)
		}
		return id, err
	})
	kinds := []struct {
		do       func() (int64, error)
		arrivals <-chan arrival
		when     string
		delays   *[]float64
	}{
		{arrivals: told, when: requestCommitted, delays: &pushes, do: func() (int64, error) {
			if _, err := u.Click(); err != nil {
				return 0, err
			}
			return stage.IDOf(u.Body.Bytes())
		}},
		{arrivals: heard, when: bellCommitted, delays: &notices, do: func() (id int64, err error) {
			return id, s.Conn.QueryRow(ctx, s.SQL(ringBell), channel).Scan(&id, nil)
		}},
	}
	defer func() {
		end()
		_ = bell.Close(context.WithoutCancel(ctx))
	}()
	for range n {
		for _, k := range kinds {
			from := time.Now() // not after the answer, which may come later than the push
			id, err := k.do()
			if err != nil {
				return nil, nil, err
			}
			a, err := await(k.arrivals, id)
			if err == nil && stamped {
				err = s.Conn.QueryRow(ctx, s.SQL(k.when), id).Scan(&from)
			}
			if err != nil {
				return nil, nil, err
			}
			*k.delays = append(*k.delays, stage.Millis(a.at.Sub(from)))
			stage.Sleep(ctx, Breath)
		}
	}
	u.Close()
	return pushes, notices, s.Check(ctx, task)
}
