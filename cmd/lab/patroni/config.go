package patroni

import (
	"fmt"
	"strings"
)

// password is used everywhere: every user of this machine can reach the loopback address anyway.
const password = "getwork"

// The times are as short as a loaded machine allows. A primary that is silent for ttl loses its role: a hard fail-over
// takes about as long. ttl must be at least loop_wait and twice retry_timeout. Patroni 3.2.0 and later raise them to at
// least 20, 1 and 3.
const (
	ttl          = 8
	loopWait     = 1
	retryTimeout = 3
)

// stopTimeout is how long a primary may take to stop before Patroni kills it. Without it Patroni waits for ever, and the host
// never follows the next primary. After some switch-overs the former primary's server was still there minutes after Patroni had
// released its role; why is not known.
const stopTimeout = 10

// patroniConfig returns a host's configuration. With strict synchronous mode every commit is on two hosts. It does not
// use etcd3: with etcd3, Patroni before 3.0.3 writes the leader's key without checking who holds it. So a primary that
// stood still for longer than ttl takes its role back from the next one, whose commits are lost
// (github.com/patroni/patroni/pull/2689).
func (c *Cluster) patroniConfig(h *Host) string {
	return fmt.Sprintf(`
scope: getwork
name: %[1]s
restapi: {listen: '%[2]s', connect_address: '%[2]s'}
etcd: {host: '%[3]s'}
bootstrap:
  dcs:
    ttl: %[4]d
    loop_wait: %[5]d
    retry_timeout: %[6]d
    maximum_lag_on_failover: 104857600
    synchronous_mode: %[7]t
    synchronous_mode_strict: %[7]t
    primary_stop_timeout: %[12]d
    postgresql:
      use_pg_rewind: true
      use_slots: true
      parameters: {max_connections: 200, synchronous_commit: 'on', wal_log_hints: 'on', wal_keep_size: 256MB, dynamic_shared_memory_type: mmap}
  initdb: [encoding: UTF8, locale: C, auth-local: trust]
postgresql:
  listen: '%[8]s'
  connect_address: '%[8]s'
  data_dir: %[9]s/data
  bin_dir: %[10]s
  pgpass: %[9]s/pgpass
  authentication:
    superuser: {username: postgres, password: %[11]s}
    replication: {username: replicator, password: %[11]s}
    rewind: {username: rewinder, password: %[11]s}
  pg_hba: [local all all trust, host all all 127.0.0.1/32 md5, host replication all 127.0.0.1/32 md5]
  parameters: {unix_socket_directories: %[9]s, fsync: 'off', wal_receiver_timeout: 20s, wal_sender_timeout: 5s,
    wal_retrieve_retry_interval: 500ms}
`, h.Name, address(h.api), address(c.etcd), ttl, loopWait, retryTimeout, c.options.Synchronous,
		address(h.port), h.dir, c.programs.postgres, password, stopTimeout)
}

// proxyConfig sends each connection to the host whose Patroni says that it is the primary. It cuts the connections to a
// host that no longer is: a session must not go on using a standby, or a frozen host.
func (c *Cluster) proxyConfig() string {
	var text strings.Builder
	fmt.Fprintf(&text, `
defaults
  mode tcp
  timeout connect 2s
  timeout client 30m
  timeout server 30m
  timeout check 1s
listen primary
  bind %s
  option httpchk OPTIONS /primary
  http-check expect status 200
  default-server inter 500ms fall 2 rise 1 on-marked-down shutdown-sessions
`, address(c.proxy))
	for _, h := range c.Hosts {
		fmt.Fprintf(&text, "  server %s %s check port %d\n", h.Name, address(h.port), h.api)
	}
	return text.String()
}
