// Package patroni runs a PostgreSQL that survives the loss of a host, for tests: three servers under Patroni, one etcd
// by which they agree, and HAProxy, which sends whoever connects to the primary. All of it listens on the
// loopback address alone.
//
//	database := patroni.Start(t, patroni.Options{Synchronous: true})
//	nodes := cluster.Start(t, 3, cluster.Options{DatabaseURL: database.ProxyURL("getwork")})
//	…
//	database.Primary(t.Context()).Kill()
//
// A host is a Patroni and the server that it started: both die, freeze and come back together, as on a machine of their own.
// Everything lies below one temporary folder, and every process works in there. A shell waits on a pipe for the end of the
// test binary, however that ends, kill -9 included; then it kills whatever works below the folder, frozen or not, and
// deletes it.
//
// It needs Linux and Debian's packages patroni, python3-etcd, etcd-server, haproxy and postgresql; where one is missing, or
// with -short, tests are skipped. PostgreSQL does not run as root: root's processes run as postgres, or as nobody.
package patroni
