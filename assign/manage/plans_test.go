package manage_test

import (
	"testing"

	"getwork/assign/enginetest"
	"getwork/assign/manage"
	"getwork/schema/schematest"
)

// No statement of a manager's act reads all work, however much of it there is.
func TestStatementsByIndex(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	url := schematest.URL(t)
	n := enginetest.Start(t, url, enginetest.Options{})
	db := enginetest.Pool(t, url)
	task := enginetest.NewTask(t, n, "common", `select 1 as item`, nil).ID
	statements := map[string]enginetest.Looked{
		"settlePlaces":   {SQL: manage.SettlePlaces, Args: []any{task, 1, 1, 2, 1}},
		"selectReleased": {SQL: manage.SelectReleased, Args: []any{"ann", 0}},
		"redriveWork":    {SQL: manage.RedriveWork, Args: []any{task, []string{"item 5"}, "ann"}},
		"taskInUse":      {SQL: manage.TaskInUse, Args: []any{task}},
	}
	enginetest.MillionClosed(t, db, task, func(when string) { enginetest.ByIndex(t, db, when, statements) })
}

// However often an item was handed out and closed, a change of the number of places reads as much as of an item without history.
func TestOneItemsHistoryIsNotRead(t *testing.T) {
	schematest.Thorough(t)
	url := schematest.URL(t)
	n := enginetest.Start(t, url, enginetest.Options{})
	db := enginetest.Pool(t, url)
	jobs := enginetest.NewTask(t, n, "jobs", "select 'old' as item", nil)
	enginetest.Execute(t, db, "vacuum getwork.work, getwork.item")
	enginetest.SameWithHistory(t, db, map[string]enginetest.Looked{"settlePlaces": {SQL: manage.SettlePlaces, Args: []any{jobs.ID, 1, 1, 2, 1}}}, jobs.ID)
}
