// Package rights knows who may do what: principals, their sessions and tokens, and how rights end.
//
// Everything that gives or ends rights is a committed row, so any node serves any call. Nodes keep what they read of a
// credential for at most two seconds. NOTIFY makes an end fast, and [Watch], which asks each second what has ended or
// changed, makes it certain: a live channel whose credential ended is closed within two seconds of the commit, on every node
// that reaches the database, with or without LISTEN.
//
// A transaction that ends rights changes the row, cancels what waits under the credential, adds its row to the audit, and
// announces itself. A click that commits beside it is found by the next look, and no round that takes the assign lock
// afterwards serves it: getwork.ended() is asked under that lock.
//
// Whom a proxy names, or an access token, has a principal but no row of its own for what they come in with. A token's rights
// are its own. A proxy says with each call what somebody may do; their principal follows it, and each difference is a change
// of rights ([Registry.Proxied]). Two proxies that contradict each other change it with each call, so that what they say again
// within ten seconds ends no live channel until it has been over for as long.
package rights
