// Package patroni runs, for tests, a PostgreSQL that survives the loss of a host: three servers under Patroni, an etcd
// by which they agree, and HAProxy, which sends clients to the primary. All of them listen only on the loopback
// address.
//
//	database := patroni.Start(t, patroni.Options{Synchronous: true})
//	nodes := cluster.Start(t, 3, cluster.Options{DatabaseURL: database.ProxyURL("getwork")})
//	…
//	database.Primary(t.Context()).Kill()
//
// A host is a Patroni and the server that it started: both die, freeze and come back together, as on a machine of their
// own. Everything is below one temporary folder, and every process works in there. A shell waits on a pipe for the end
// of the test binary, which may even be kill -9. Then it kills all processes that work below the folder, frozen or not,
// and deletes it.
//
// It needs Linux and Debian's packages patroni, python3-etcd, etcd-server, haproxy and postgresql; if one is missing,
// or with -short, tests are skipped. PostgreSQL does not run as root, so root's processes run as postgres, or as
// nobody.
package patroni
