package doctor

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// senders are the connections over which the server sends WAL. Without pg_read_all_stats a login sees no more than their names, and
// all slots. A logical sender always has a slot; a physical one need not. A standby reports what it has replayed. A backup and
// pg_receivewal don't, nor does a connection that streams nothing.
const senders = `
select coalesce(r.application_name, ''), coalesce(r.sync_state, ''), r.replay_lsn is not null, r.state is null,
  exists (select from pg_replication_slots s where s.active_pid = r.pid and s.slot_type = 'logical')
from pg_stat_replication r order by r.application_name, r.pid`

type sender struct {
	Name, Sync               string
	Replays, Hidden, Logical bool
}

// confirms reports whether commits count it. A sender that is not streaming yet, or whose receiver never says what it has on disk,
// is potential or async although its name matches.
func (s sender) confirms() bool { return s.Sync == "sync" || s.Sync == "quorum" }

func (s sender) String() string {
	kind := s.Sync
	if s.Logical {
		kind += " logical"
	}
	return strings.TrimSpace(fmt.Sprintf("%q %s", s.Name, kind))
}

func lookAtStandbys(ctx context.Context, x *examination) ([]Finding, error) {
	is, err := rowsOf[durable](ctx, x.db, durability)
	if err != nil {
		return nil, err
	}
	all, err := rowsOf[sender](ctx, x.db, senders)
	if err != nil {
		return nil, err
	}
	return one(standbysFinding(is[0], all, x.db.Config().User))
}

// standbysFinding says whether commits wait, and whether what they wait for arrives. PostgreSQL counts a logical subscriber whose
// name matches as it counts a standby, but nobody fails over to a subscriber.
func standbysFinding(d durable, all []sender, login string) Finding {
	var names []string
	var standbys, confirm, logical int
	hidden := false
	for _, s := range all {
		names = append(names, s.String())
		hidden = hidden || s.Hidden
		if !s.Logical && (s.Replays || s.Hidden && s.Name != "pg_basebackup" && s.Name != "pg_receivewal") {
			standbys++
		}
		if s.confirms() {
			confirm++
			if s.Logical {
				logical++
			}
		}
	}
	const forgets = "a fail-over may forget the last ones, and with them who was blocked or signed out"
	const start = "start the standbys that are named there, with that application_name in their primary_conninfo, or change synchronous_standby_names"
	needed, understood := confirmations(d.Names)
	switch {
	case d.Names == "" && standbys == 0:
		return skipped("no standby is connected")
	case d.Names == "":
		return warned("name the standbys in synchronous_standby_names, and leave synchronous_commit on", "%s connected, and commits don't wait for it: %s", standing(standbys), forgets)
	case d.Commit == "off" || d.Commit == "local":
		return warned("set synchronous_commit = on for the role and the database", "synchronous_commit = %s: commits don't wait for the standby, and %s", d.Commit, forgets)
	case len(all) == 0:
		return failed(start, "every commit waits: synchronous_standby_names is %q, and no standby is connected", d.Names)
	case !understood:
		return skipped("synchronous_standby_names is %q: this program can't tell how many standbys that needs", d.Names)
	case len(all) < needed, !hidden && confirm < needed:
		return failed(start, "every commit waits: synchronous_standby_names is %q, which needs %s; connected: %s", d.Names, counted(needed, "standby"), some(names))
	case hidden:
		return skipped("synchronous_standby_names is %q; connected: %s; %s may not see who confirms commits: grant pg_read_all_stats to %s shows it", d.Names, some(names), login, login)
	case logical >= needed:
		return warned("name only standbys in synchronous_standby_names", "a commit may wait for no more than a logical subscriber (connected: %s): %s", some(names), forgets)
	}
	return fine("commits wait for %s (connected: %s; synchronous_commit = %s)", counted(needed, "standby"), some(names), d.Commit)
}

func standing(n int) string {
	if n == 1 {
		return "1 standby is"
	}
	return fmt.Sprintf("%d standbys are", n)
}

// standbyNames is the grammar of synchronous_standby_names: names, or a number of them with FIRST, ANY or neither before it.
var standbyNames = func() *regexp.Regexp {
	const space = `[ \t\n\r\f\v]*`
	const name = space + `(?:"(?:[^"]|"")*"|\*|[0-9]+|[a-z_\x{80}-\x{10ffff}][a-z0-9_$\x{80}-\x{10ffff}]*)` + space
	const list = name + `(?:,` + name + `)*`
	return regexp.MustCompile(`(?is)^(?:` + list + `|` + space + `(?:(?:first|any)[ \t\n\r\f\v]+)?([0-9]+)` + space + `\(` + list + `\)` + space + `)$`)
}()

// confirmations returns how many standbys must confirm a commit; false: the names are not understood.
func confirmations(names string) (int, bool) {
	match := standbyNames.FindStringSubmatch(names)
	if match == nil {
		return 0, false
	}
	if match[1] == "" {
		return 1, true
	}
	if n, err := strconv.Atoi(match[1]); err == nil && n > 0 {
		return n, true
	}
	return 0, false
}
