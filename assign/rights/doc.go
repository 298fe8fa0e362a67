// Package rights knows who may do what: principals, their sessions and tokens, and how rights end.
//
// Everything that gives or ends rights is a committed row, so any node serves any call. Nodes cache what they read of a
// credential for at most a second. NOTIFY makes an end fast, and [Watch], which asks each second what has ended or
// changed, makes it certain: a live channel whose credential ended is closed within two seconds of the commit, on every node
// that reaches the database, with or without LISTEN.
//
// A transaction that ends rights changes the row, cancels what waits under the credential, adds its row to the audit, and
// announces itself. A click that commits beside it is found by the next look, and no round that takes the assign lock
// afterwards serves it: getwork.ended_among() is asked under that lock.
//
// A user whom a proxy or an access token names has a principal, but no row for the credential. An access token carries its own
// rights. A proxy states the user's rights with each call: the principal's row follows, and each difference is a change of
// rights ([Registry.Proxied]). If two proxies contradict each other in turn, the row follows each of them, but no live channel
// ends for it before they have agreed for ten seconds. Otherwise no channel of that user could live.
package rights
