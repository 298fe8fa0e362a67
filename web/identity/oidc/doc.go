// Package oidc is the part of log-in that speaks OpenID Connect: getwork as a client of an identity provider, and as a
// resource server that takes its access tokens.
//
// A [Source] is an issuer: its discovery document and its keys, read again while the node runs. A [Provider] sends a browser
// there (Start), judges what it brings back (Callback), asks later whether a session goes on (Refresh), and hears that one does
// not (Backchannel). A [JWT] judges access tokens that programs send. [Handlers] has the addresses under /auth.
//
// The package writes no row. What may happen only once is behind [Once], and what begins and ends sessions is behind
// [Sessions], so that every rule about a provider's answers is tested against a hostile one, without a database: see
// cmd/lab/liar.
//
// Three rules hold everywhere:
//   - What is not understood is refused. The log says why by a code; neither the log nor the page ever has a claim, a token, or
//     a text of the provider.
//   - Claims are read by their exact names. encoding/json would take "SUB" for "sub".
//   - Everything but the signature is looked at first, and nobody but the provider itself can make a node fetch keys more than
//     once a minute.
package oidc
