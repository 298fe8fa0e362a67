package schema

// Steps of [Up], for tests that stop between two migrations.
var (
	Create    = create
	MigrateTo = migrateTo
)
