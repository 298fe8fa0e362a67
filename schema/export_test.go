package schema

import (
	"fmt"
	"io/fs"
	"testing/fstest"
)

// Steps of [Up], for tests that stop between two migrations.
var (
	Create    = create
	MigrateTo = migrateTo
)

// Released is the newest version that users get. The tests of this package know two more, which they come to one at a time: Altered
// changes a table that each click writes, in one transaction. Indexed builds and drops indexes of it beside people who work.
var Released, Altered, Indexed int32

func init() {
	all := fstest.MapFS{}
	names, err := fs.Glob(embedded, "migrations/*.sql")
	if err != nil {
		panic(err)
	}
	for _, name := range names {
		text, err := embedded.ReadFile(name)
		if err != nil {
			panic(err)
		}
		all[name] = &fstest.MapFile{Data: text}
	}
	Released = int32(len(names))
	Altered, Indexed = Released+1, Released+2
	all[fmt.Sprintf("migrations/%03d_altered.sql", Altered)] = &fstest.MapFile{Data: []byte(altered)}
	all[fmt.Sprintf("migrations/%03d_indexed.sql", Indexed)] = &fstest.MapFile{Data: []byte(indexed)}
	files = all
}

var altered = `
alter table getwork.work add column made_up integer;
comment on column getwork.work.made_up is 'Made up.';
` + build("", "before") + `
---- create above / drop below ----
alter table getwork.work drop column made_up;
`

var indexed = `
---- tern: disable-tx ----
-- A comment before a statement.
` + build("concurrently", "after") + `
comment on index getwork.made_up_after_1 is 'Made up.';
` + dropThem("before") + `
---- create above / drop below ----
---- tern: disable-tx ----
` + build("concurrently", "before") + dropThem("after")

// build builds seven indexes, the first of which is unique.
func build(concurrently, name string) (statements string) {
	kind := "unique index"
	for i, of := range []string{"(made_up, id)", "(made_up)", "(made_up, item)", "((made_up + 0))", "(made_up, user_name)", "(made_up, slot)", "(made_up) where state = 'held'"} {
		statements += fmt.Sprintf("create %s %s made_up_%s_%d on getwork.work %s;\n", kind, concurrently, name, i+1, of)
		kind = "index"
	}
	return statements
}

// dropThem drops the indexes again, beside people who work.
func dropThem(name string) (statements string) {
	for i := range 7 {
		statements += fmt.Sprintf("drop index concurrently if exists getwork.made_up_%s_%d;\n", name, i+1)
	}
	return statements
}
