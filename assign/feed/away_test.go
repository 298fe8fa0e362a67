package feed

import (
	"testing"

	"getwork/schema/schematest"
)

// While the database is away, a node with followers logs that it can't deliver now and then, and not each time.
func TestTheFeedDoesNotRepeatItselfWhileTheDatabaseIsAway(t *testing.T) {
	t.Parallel()
	server := schematest.OwnServer(t, nil)
	n := startNode(t, server.URL("getwork"), NodeOptions{})
	join(t, n, "ann")
	server.Crash()
	await(t, "it was passed over three times", func() bool {
		return n.Feed.limit.Withheld() > 2
	})
}
