package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/schema"
)

// push measures how long after a round's commit its user is told by another node than the one that served him.
func push(ctx context.Context, e *Env) ([]Figure, error) {
	told := Figure{Key: "push_p50", Name: "Commit of a round to the push on another node, p50", Unit: "ms", Goal: &Goal{AtMost: new(2.0), Absolute: true}}
	late := Figure{Key: "push_p99", Name: "Commit of a round to the push on another node, p99", Unit: "ms"}
	bare := Figure{Key: "limit_notify_p50", Name: "NOTIFY alone: commit to receipt, p50", Unit: "ms"}
	stamped, err := e.stampsCommits(ctx)
	if err != nil {
		return nil, err
	}
	if told.Note = "counted from PostgreSQL's own time of the commit"; !stamped {
		told.Note = "counted from the answer on the first node, which comes somewhat later than the commit: track_commit_timestamp is off, or the server is on another machine"
		bare.Note = "counted from the commit's return"
	}
	for round := range e.Rounds {
		e.log("round %d of %d: pushes", round+1, e.Rounds)
		pushes, notices, err := e.pushes(ctx, stamped)
		if err != nil {
			return nil, err
		}
		told.Values, late.Values = append(told.Values, percentile(pushes, 50)), append(late.Values, percentile(pushes, 99))
		bare.Values = append(bare.Values, percentile(notices, 50))
	}
	told.Limit = &bare
	return []Figure{told, late}, nil
}

// stampsCommits tells whether the server says when a transaction was committed, by this machine's clock.
func (e *Env) stampsCommits(ctx context.Context) (bool, error) {
	conn, err := e.Connect(ctx)
	if err != nil {
		return false, err
	}
	defer conn.Close(ctx)
	var on bool
	if err := conn.QueryRow(ctx, `select current_setting('track_commit_timestamp')::bool`).Scan(&on); err != nil {
		return false, fmt.Errorf("ask for the server's settings: %w", err)
	}
	return on && e.ServerPID != 0, nil
}

// arrival is when something came that was committed before.
type arrival struct {
	id   int64 // of its row
	from time.Time
	at   time.Time
}

// pushes are the times, in ms, from a commit to the push, and from a commit to a bare notification, in turn.
func (e *Env) pushes(ctx context.Context, stamped bool) (pushes, notices []float64, err error) {
	s, leave, err := e.stage(ctx, 2)
	if err != nil {
		return nil, nil, err
	}
	defer leave()
	u, err := s.shelfFor(ctx, "push", 3, 20_000)
	if err != nil {
		return nil, nil, err
	}
	defer u.close()
	socket, err := dialSocket(ctx, s.nodes.URL(1), u.name)
	if err != nil {
		return nil, nil, err
	}
	defer socket.close()
	defer context.AfterFunc(ctx, socket.close)()
	bell, err := s.newBell(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer bell.conn.Close(context.WithoutCancel(ctx))
	n := 500
	if e.Quick {
		n = 100
	}
	reading, stop := context.WithCancel(ctx)
	defer stop()
	told := socket.requests(reading)
	var pushed, noticed []arrival
	for range n {
		a, err := pushOne(u, told)
		if err != nil {
			return nil, nil, err
		}
		pushed = append(pushed, a)
		sleep(ctx, breath)
		if a, err = bell.ring(ctx); err != nil {
			return nil, nil, fmt.Errorf("NOTIFY alone: %w", err)
		}
		noticed = append(noticed, a)
		sleep(ctx, breath)
	}
	const requestTime = `select pg_xact_commit_timestamp(xmin) from getwork.work_requested where id = $1`
	const bellTime = `select pg_xact_commit_timestamp(xmin) from getwork.bench_bell where id = $1`
	if pushes, err = s.delays(ctx, pushed, requestTime, stamped); err != nil {
		return nil, nil, err
	}
	if notices, err = s.delays(ctx, noticed, bellTime, stamped); err != nil {
		return nil, nil, err
	}
	return pushes, notices, s.check(ctx, "push", u.items)
}

// pushedRequest is one that a socket was told of as served.
type pushedRequest struct {
	id int64
	at time.Time
}

// requests reads a socket until it ends, and passes on what it is told of requests. It may be told of one twice.
func (s *socketWire) requests(ctx context.Context) <-chan pushedRequest {
	told := make(chan pushedRequest, 100)
	go func() {
		defer close(told)
		for {
			message, err := s.read()
			at := time.Now()
			if err != nil {
				return // whoever waits notices
			}
			_, request, found := bytes.Cut(message, []byte(`"request":`))
			if !found || !endsRequest(message) {
				continue
			}
			if id, err := numberOf(request); err == nil {
				select {
				case told <- pushedRequest{id, at}:
				case <-ctx.Done():
					return
				}
			}
		}
	}()
	return told
}

func numberOf(request []byte) (int64, error) {
	id, err := idOf(request)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(string(id), 10, 64)
}

// pushOne has the user click on the first node, and waits until his socket on the other is told of it.
func pushOne(u *user, told <-chan pushedRequest) (arrival, error) {
	if _, err := u.click(); err != nil {
		return arrival{}, err
	}
	answered := time.Now()
	id, err := numberOf(u.wire.body)
	if err != nil {
		return arrival{}, err
	}
	late := time.NewTimer(10 * time.Second)
	defer late.Stop()
	for {
		select {
		case p, open := <-told:
			switch {
			case !open:
				return arrival{}, errors.New("the socket ended before the push came")
			case p.id == id:
				return arrival{id: id, from: answered, at: p.at}, nil
			}
		case <-late.C:
			return arrival{}, fmt.Errorf("request %d was not pushed within ten seconds", id)
		}
	}
}

// bell is a row that is inserted with a NOTIFY, and a connection that listens.
type bell struct {
	stage *stage
	conn  *pgx.Conn // listens
}

func (s *stage) newBell(ctx context.Context) (*bell, error) {
	if err := s.exec(ctx, `create table getwork.bench_bell (id bigint generated always as identity primary key)`); err != nil {
		return nil, fmt.Errorf("make a table: %w", err)
	}
	conn, err := s.env.Connect(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Exec(ctx, "listen "+s.bellChannel().Quoted()); err != nil {
		_ = conn.Close(ctx)
		return nil, fmt.Errorf("listen: %w", err)
	}
	return &bell{stage: s, conn: conn}, nil
}

// bellChannel is one that no node hears.
func (s *stage) bellChannel() schema.Name { return s.name + "_bell" }

func (b *bell) ring(ctx context.Context) (arrival, error) {
	heard := make(chan error, 1)
	var at time.Time
	waiting, stop := context.WithTimeout(ctx, 10*time.Second)
	defer stop()
	go func() {
		_, err := b.conn.WaitForNotification(waiting)
		at = time.Now()
		heard <- err
	}()
	const ring = `with r as (insert into getwork.bench_bell default values returning id) select id, pg_notify($1, id::text) from r`
	var id int64
	err := b.stage.conn.QueryRow(ctx, b.stage.sql(ring), string(b.stage.bellChannel())).Scan(&id, nil)
	returned := time.Now()
	if err != nil {
		stop()
	}
	return arrival{id: id, from: returned, at: at}, errors.Join(err, <-heard)
}

// delays are the times, in ms, from each commit to what came of it. A commit that was not stamped counts from what the
// arrival itself says.
func (s *stage) delays(ctx context.Context, arrivals []arrival, when string, stamped bool) ([]float64, error) {
	var delays []float64
	for _, a := range arrivals {
		if stamped {
			if err := s.conn.QueryRow(ctx, s.sql(when), a.id).Scan(&a.from); err != nil {
				return nil, fmt.Errorf("ask when it was committed: %w", err)
			}
		}
		delays = append(delays, millis(a.at.Sub(a.from)))
	}
	return delays, nil
}
