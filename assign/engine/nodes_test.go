package engine_test

import (
	"context"
	"testing"
	"time"

	"getwork/assign"
	"getwork/assign/engine"
	"getwork/assign/enginetest"
	"getwork/assign/explain"
	"getwork/assign/feed"
	"getwork/assign/manage"
	"getwork/assign/pg"
	"getwork/assign/records"
	"getwork/assign/tidy"
)

func init() {
	engine.Above.Start = func(t testing.TB, url string, o engine.NodeOptions) (*engine.Engine, *records.Records, *feed.Feed, *pg.Pools, func()) {
		t.Helper()
		n := enginetest.Start(t, url, enginetest.Options(o))
		return n.Engine, n.Records, n.Feed, n.Pools, n.Stop
	}
	engine.Above.CreateTask, engine.Above.UpdateTask, engine.Above.DeleteTask = manage.CreateTask, manage.UpdateTask, manage.DeleteTask
	engine.Above.Restore, engine.Above.SetPaused = manage.Restore, manage.SetPaused
	engine.Above.Release, engine.Above.Reassign, engine.Above.Redrive = manage.Release, manage.Reassign, manage.Redrive
	engine.Above.EnterAbsence, engine.Above.EndAbsence = manage.EnterAbsence, manage.EndAbsence
	engine.Above.SetSkills, engine.Above.Give = manage.SetSkills, manage.Give
	engine.Above.Explain = func(ctx context.Context, e *engine.Engine, task, item string) (assign.Explanation, error) {
		return explain.Item(ctx, e, task, item, nil)
	}
	remover := func(e *engine.Engine, keep time.Duration) *tidy.Remover {
		return &tidy.Remover{DB: e.DB, SQL: e.SQL, Retention: keep, Log: e.Log}
	}
	engine.Above.Retain = func(ctx context.Context, e *engine.Engine, keep time.Duration) error {
		return remover(e, keep).Retain(ctx)
	}
	engine.Above.RetainWork = func(ctx context.Context, e *engine.Engine, keep time.Duration) error {
		return remover(e, keep).Work(ctx)
	}
	engine.Above.Leftovers = func(ctx context.Context, e *engine.Engine, keep time.Duration) error {
		remover(e, keep).Leftovers(ctx)
		return nil
	}
}
