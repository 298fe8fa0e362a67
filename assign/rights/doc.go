// Package rights knows who may do what: principals, their sessions and tokens, and how rights end.
//
// Everything that gives or ends rights is a committed row, so any node serves any call. Nodes cache what they read of a
// credential for at most a second. NOTIFY makes an end fast, and [Watch], which asks each second what has ended or
// changed, makes it certain: a live channel whose credential ended is closed within two seconds of the commit, on every node
// that reaches the database, with or without LISTEN.
//
// A transaction that ends rights changes the row, cancels what waits under the credential, adds its row to the audit, and
// announces itself. A click that commits beside it is found by the next poll, and no round that takes the assign lock
// afterwards serves it: getwork.ended_among() is asked under that lock.
//
// A user whom a proxy or an access token names has a principal, but no row for the credential. An access token carries its own
// rights. A proxy states the user's rights with each call: the principal's row follows, and each difference is a change of
// rights ([Registry.Proxied]). If two proxies contradict each other in turn, the row follows each of them, but no live channel
// ends for it before they have agreed for ten seconds. Otherwise no channel of that user could live.
//
// Once a second, and whenever NOTIFY names a change, a node selects the rows that have changed since its last snapshot, and
// reads again those that its live channels depend on. The rights with which a channel was opened may be older than that
// snapshot, so they are read once more at the next poll. After a fail-over or a restore everything is read again.
//
// # Races
//
//   - A transaction with a low id commits late, after the poll that would have shown it. Each poll compares with the last
//     snapshot, not with the highest id. TestLateCommitsAreSeen
//   - A click commits beside a change of its user's groups, and lingers with the former ones. The next poll gives it the
//     groups of its session, token or principal. TestClickBesideAChange
//   - A click by proxy or JWT commits beside the rebind of its user's name, and is served to the name's new account. A
//     credential contains the number of rebinds, so that of the former account has ended. TestClickBesideAChange
//   - A log-in moves some of its user's requests, cancels others, and deadlocks with a run's round, whose result is lost. It
//     first locks all of them, in the order of their ids. TestLogInLocksFirst, TestLogInBesideARun
//   - The provider's log-out message comes while a log-in is under way, and finds no session. The message is remembered, and
//     ends log-ins whose ID token is no younger. Message and log-in first take one lock. TestLogOutBesideTheSession
//   - The provider repeats a log-out message. Its id is inserted in the transaction that ends the sessions.
//     TestLogOutMessageCountsOnce
//   - Two nodes refresh one session at once, and the provider ends it. A node commits a claim on the session before it asks,
//     and stores the answer only while the claim lasts. TestRefreshIsClaimed
//   - The database goes away when the provider has just replaced a refresh token. The node tries to store the new one for a
//     minute. The claim lasts longer, so no other node shows the old one meanwhile. TestRefreshOutlivesTheDatabase
//   - The provider gives somebody no role any more, and their tokens keep the last one. A refresh or a log-in that shows it
//     takes the role from the principal's row, which tokens can't exceed, and ends all sessions. TestLogInWithoutARole
//   - That answer waits for the database, and meanwhile the user gets a role again. It counts only if its claim lasts and no
//     log-in or refresh came after the claim. TestLateUngranted, TestLogInBesideARefresh
//   - Two tabs of one session log in at once. Each log-in relies on its own proof, not on the session that the browser showed.
//     TestLogInFromTabsOfOneSession
//   - A node is cut off from the database, and its channels go on. After 30 s it closes them, spread over half a minute.
//     TestCutOffNodesPart
package rights
