package records

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"getwork/assign/pg"
)

// Callers who come while a read is under way share the next one, and each gets their own answer.
func TestBatcher(t *testing.T) {
	t.Parallel()
	reading, read := make(chan []int), make(chan error)
	g := &Batcher[int, string]{Read: func(ctx context.Context, asked []int) (answers []string, err error) {
		select {
		case reading <- asked:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		for _, i := range asked {
			answers = append(answers, fmt.Sprint("to ", i))
		}
		return answers, <-read
	}}
	var asking sync.WaitGroup
	ask := func(i int, want error) {
		asking.Go(func() {
			if got, err := g.Ask(t.Context(), i); !errors.Is(err, want) || err == nil && got != fmt.Sprint("to ", i) {
				t.Errorf("%d got %q, %v", i, got, err)
			}
		})
	}
	queued := func(want int) {
		for g.Queued() != want {
			runtime.Gosched()
		}
	}
	ask(0, nil)
	if first := <-reading; !slices.Equal(first, []int{0}) {
		t.Errorf("the first read is for %v", first)
	}
	for i := range 2 * MaxBatch {
		ask(i, nil)
	}
	queued(2 * MaxBatch)
	impatient, leave := context.WithCancel(t.Context())
	leave()
	if _, err := g.Ask(impatient, -1); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller whose context has ended got %v", err)
	}
	read <- nil
	for _, want := range []int{MaxBatch, MaxBatch, 1} {
		if together := <-reading; len(together) != want {
			t.Errorf("a read for %d, want %d", len(together), want)
		}
		read <- nil
	}
	asking.Wait()

	broken := errors.New("the database is away")
	ask(7, broken)
	<-reading
	read <- broken
	asking.Wait()
}

// A name that the database can't store fails for its caller alone, and not for the callers who share the read.
func TestBatcherRefusesOne(t *testing.T) {
	t.Parallel()
	begun, open := make(chan bool, 1), make(chan bool)
	b := &Batcher[string, string]{Read: func(_ context.Context, asked []string) ([]string, error) {
		select {
		case begun <- true:
			<-open
		default:
		}
		if slices.Contains(asked, "木村") {
			return nil, &pgconn.PgError{Code: "22P05"}
		}
		return asked, nil
	}}
	var asking sync.WaitGroup
	ask := func(name string) {
		asking.Go(func() {
			got, err := b.Ask(t.Context(), name)
			if refused := pg.Unheld(err); refused != (name == "木村") || !refused && got != name {
				t.Errorf("%s got %q, %v", name, got, err)
			}
		})
	}
	ask("first")
	for b.Queued() > 0 || len(begun) == 0 {
		runtime.Gosched()
	}
	names := []string{"ann", "bob", "木村", "cem", "dora"}
	for _, name := range names {
		ask(name)
	}
	for b.Queued() < len(names) {
		runtime.Gosched()
	}
	close(open)
	asking.Wait()
}
