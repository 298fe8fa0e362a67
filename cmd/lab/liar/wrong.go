// Package liar is an identity provider that lies: [Wrongs] are the answers that a client must not believe. Its tests expect getwork's
// log-in to refuse each of them.
package liar

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	jose "github.com/go-jose/go-jose/v4"

	"getwork/cmd/internal/idp"
)

// Wrong changes what the provider answers.
type Wrong = idp.Hooks

// Provider answers well until it is [Provider.Set] to lie.
type Provider struct {
	*idp.Provider
	wrong atomic.Pointer[Wrong]
}

// Start starts a provider. It serves until Close.
func Start(c idp.Config) (p *Provider, err error) {
	p = &Provider{}
	c.Hooks = p.wrong.Load
	p.Provider, err = idp.Start(c)
	return p, err
}

// Set has the provider answer wrongly from now on; the zero Wrong has it answer well.
func (p *Provider) Set(w Wrong) { p.wrong.Store(&w) }

// claim returns a lie that sets a claim, or removes it if the value is nil.
func claim(name string, value any) Wrong {
	return Wrong{Claims: func(c map[string]any) { put(c, name, value) }}
}

func put(m map[string]any, name string, value any) {
	if m[name] = value; value == nil {
		delete(m, name)
	}
}

// moved returns a lie that moves a time by so much from now.
func moved(name string, d time.Duration) Wrong {
	return Wrong{Claims: func(c map[string]any) { c[name] = time.Now().Add(d).Unix() }}
}

// many returns that many groups.
func many(n int) []string {
	groups := []string{"loan-desk"}
	for i := range n - 1 {
		groups = append(groups, "group-"+string(rune('a'+i%26))+"-"+base64.RawURLEncoding.EncodeToString([]byte{byte(i >> 8), byte(i)}))
	}
	return groups
}

// back returns a lie that sets a parameter which the browser brings back, or removes it.
func back(name string, values ...string) Wrong {
	return Wrong{Back: func(q url.Values) {
		if q[name] = values; len(values) == 0 {
			delete(q, name)
		}
	}}
}

// at returns a lie that answers calls of one path.
func at(path string, h http.HandlerFunc) Wrong {
	return Wrong{Before: func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != path {
			return false
		}
		h(w, r)
		return true
	}}
}

// noGroups leaves the groups to userinfo, which lies.
func noGroups(info func(map[string]any)) Wrong {
	return Wrong{Claims: func(c map[string]any) { delete(c, "groups") }, UserInfo: info}
}

// Wrongs are answers that a client must refuse at a log-in, by name, each with the reason that getwork logs.
var Wrongs = map[string]struct {
	Reason string
	Wrong
}{
	"state of another log-in":    {"no-cookie", back("state", strings.Repeat("A", 43))},
	"state missing":              {"state-form", back("state")},
	"state of another form":      {"state-form", back("state", "A/../..")},
	"state twice":                {"parameters", back("state", strings.Repeat("A", 43), strings.Repeat("B", 43))},
	"code missing":               {"no-code", back("code")},
	"code empty":                 {"no-code", back("code", "")},
	"code twice":                 {"parameters", back("code", "a", "b")},
	"code of nobody":             {"code-refused", back("code", "made-up")},
	"iss of another":             {"iss-parameter", back("iss", "https://evil.example")},
	"iss with a slash more":      {"iss-parameter", Wrong{Back: func(q url.Values) { q.Set("iss", q.Get("iss")+"/") }}},
	"iss missing":                {"iss-parameter", back("iss")},
	"error access_denied":        {"provider-refused", back("error", "access_denied")},
	"error of any text":          {"provider-refused", back("error", "<script>secret</script>")},
	"error server_error":         {"provider-refused", back("error", "server_error")},
	"no ID token":                {"no-id-token", Wrong{Token: func(b map[string]any) { delete(b, "id_token") }}},
	"ID token is a number":       {"no-id-token", Wrong{Token: func(b map[string]any) { b["id_token"] = 1 }}},
	"ID token is encrypted":      {"id-token-form", Wrong{Token: func(b map[string]any) { b["id_token"] = "a.b.c.d.e" }}},
	"ID token is JSON":           {"id-token-form", Wrong{Token: func(b map[string]any) { b["id_token"] = `{"payload":"e30","signatures":[]}` }}},
	"no access token":            {"token-endpoint", Wrong{Token: func(b map[string]any) { delete(b, "access_token") }}},
	"nonce of another log-in":    {"nonce", claim("nonce", strings.Repeat("n", 43))},
	"nonce missing":              {"nonce", claim("nonce", nil)},
	"nonce in capitals":          {"nonce", Wrong{Claims: func(c map[string]any) { c["NONCE"] = c["nonce"]; delete(c, "nonce") }}},
	"nonce empty":                {"nonce", claim("nonce", "")},
	"iss in the token":           {"issuer", claim("iss", "https://evil.example")},
	"iss in the token missing":   {"issuer", claim("iss", nil)},
	"iss in the token, slash":    {"issuer", Wrong{Claims: func(c map[string]any) { c["iss"] = c["iss"].(string) + "/" }}},
	"aud of another":             {"audience", claim("aud", "other")},
	"aud missing":                {"audience", claim("aud", nil)},
	"aud is a prefix":            {"audience", claim("aud", "getwor")},
	"aud several, no azp":        {"azp", Wrong{Claims: func(c map[string]any) { c["aud"] = []any{c["aud"], "other"} }}},
	"azp of another":             {"azp", claim("azp", "other")},
	"aud several, azp of other":  {"azp", Wrong{Claims: func(c map[string]any) { c["aud"], c["azp"] = []any{c["aud"], "other"}, "other" }}},
	"exp past":                   {"expired", moved("exp", -time.Second)},
	"exp missing":                {"expired", claim("exp", nil)},
	"exp is text":                {"expired", claim("exp", "2099-01-01")},
	"exp is endless":             {"expired", claim("exp", 1e300)},
	"iat in the future":          {"issued-at", moved("iat", 10*time.Minute)},
	"iat missing":                {"issued-at", claim("iat", nil)},
	"auth_time in the future":    {"auth-time", moved("auth_time", 10*time.Minute)},
	"auth_time is text":          {"auth-time", claim("auth_time", "now")},
	"at_hash of another":         {"at-hash", claim("at_hash", "AAAAAAAAAAAAAAAAAAAAAA")},
	"at_hash empty":              {"at-hash", claim("at_hash", "")},
	"sub missing":                {"subject", claim("sub", nil)},
	"sub empty":                  {"subject", claim("sub", "")},
	"sub is a number":            {"subject", claim("sub", 1)},
	"sub in capitals":            {"subject", Wrong{Claims: func(c map[string]any) { c["SUB"] = c["sub"]; delete(c, "sub") }}},
	"sub has U+0000":             {"subject", claim("sub", "a\x00")},
	"sub is too long":            {"subject", claim("sub", strings.Repeat("s", 256))},
	"another sub in old letters": {"id-token-form", claim("\u017fub", "0003")}, // encoding/json takes U+017F for an s
	"sid is a list":              {"sid", claim("sid", []string{"a"})},
	"alg none":                   {"id-token-form", Wrong{Sign: unsigned}},
	"alg none, signature":        {"algorithm", Wrong{Sign: func(key *jose.JSONWebKey, h, c map[string]any) string { return unsigned(key, h, c) + "AAAA" }}},
	"alg HS256, public key":      {"algorithm", Wrong{Sign: confused}},
	"alg RS256, key is EC":       {"signature", Wrong{Sign: func(key *jose.JSONWebKey, h, c map[string]any) string { return relabelled(key, h, c, "RS256") }}},
	"alg ES384":                  {"algorithm", Wrong{Sign: func(key *jose.JSONWebKey, h, c map[string]any) string { return relabelled(key, h, c, "ES384") }}},
	"kid unknown":                {"signature", Wrong{Header: func(h map[string]any) { h["kid"] = "made-up" }}},
	"key of somebody else":       {"signature", Wrong{Sign: stranger}},
	"own key in the header":      {"signature", Wrong{Sign: embedded}},
	"signature changed":          {"signature", Wrong{Sign: func(key *jose.JSONWebKey, h, c map[string]any) string { return swapped(idp.Signed(key, h, c)) }}},
	"claims changed":             {"signature", Wrong{Sign: promoted}},
	"userinfo of another sub":    {"userinfo-subject", noGroups(func(i map[string]any) { i["sub"] = "0003" })},
	"userinfo without sub":       {"userinfo-subject", noGroups(func(i map[string]any) { delete(i, "sub") })},
	"userinfo, sub in capitals":  {"userinfo-subject", noGroups(func(i map[string]any) { i["SUB"] = i["sub"]; delete(i, "sub") })},
	"groups nowhere":             {"groups-missing", noGroups(func(i map[string]any) { delete(i, "groups") })},
	"groups null":                {"groups-missing", Wrong{Claims: func(c map[string]any) { c["groups"] = nil }, UserInfo: func(i map[string]any) { i["groups"] = nil }}},
	"groups are numbers":         {"groups-form", claim("groups", []any{"loan-desk", 1})},
	"groups are an object":       {"groups-form", claim("groups", map[string]any{"loan-desk": true})},
	"groups are nested":          {"groups-form", claim("groups", []any{[]string{"loan-desk"}})},
	"groups are a number":        {"groups-form", claim("groups", 7)},
	"groups have null":           {"groups-form", claim("groups", []any{"loan-desk", nil})},
	"a group has a comma":        {"group-name", claim("groups", []string{"loan-desk", "a,b"})},
	"a group is empty":           {"group-name", claim("groups", []string{"loan-desk", ""})},
	"groups 201":                 {"groups-too-many", claim("groups", many(201))},
	"groups empty":               {"no-grant", claim("groups", []string{})},
	"groups in capitals":         {"no-grant", claim("groups", []string{"Loan-Desk"})},
	"groups of nothing here":     {"no-grant", claim("groups", "canteen")},
	"_claim_names":               {"groups-elsewhere", Wrong{Claims: elsewhere, UserInfo: func(i map[string]any) { delete(i, "groups") }}},
	"_claim_names and groups":    {"groups-elsewhere", Wrong{Claims: func(c map[string]any) { groups := c["groups"]; elsewhere(c); c["groups"] = groups }}},
	"_claim_names in userinfo":   {"groups-elsewhere", noGroups(elsewhere)},
	"hasgroups":                  {"groups-elsewhere", claim("hasgroups", true)},
	"name nowhere":               {"name-missing", claim("preferred_username", nil)},
	"name empty":                 {"name-missing", claim("preferred_username", "")},
	"name is a list":             {"name-form", claim("preferred_username", []string{"Oliver"})},
	"token endpoint 500":         {"token-endpoint", at("/token", func(w http.ResponseWriter, _ *http.Request) { refuse(w, 500, "invalid_grant") })},
	"token endpoint redirects": {"token-endpoint", at("/token", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
	})},
	"token endpoint is HTML":  {"token-endpoint", at("/token", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<!doctype html>")) })},
	"token endpoint is huge":  {"token-endpoint", at("/token", huge)},
	"token endpoint hangs up": {"token-endpoint", at("/token", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })},
	"invalid_client":          {"token-endpoint", at("/token", func(w http.ResponseWriter, _ *http.Request) { refuse(w, 401, "invalid_client") })},
	"userinfo 500":            {"userinfo", both(noGroups(nil), at("/userinfo", func(w http.ResponseWriter, _ *http.Request) { refuse(w, 500, "server_error") }))},
	"userinfo redirects":      {"userinfo", both(noGroups(nil), at("/userinfo", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/elsewhere", http.StatusFound) }))},
	"userinfo is huge":        {"userinfo", both(noGroups(nil), at("/userinfo", huge))},
	"userinfo is a JWT":       {"userinfo-form", both(noGroups(nil), at("/userinfo", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("a.b.c")) }))},
}

// both joins a lie and a call that is answered by another.
func both(w, before Wrong) Wrong {
	w.Before = before.Before
	return w
}

// elsewhere says where the groups are, as Entra does from 200 groups on.
func elsewhere(c map[string]any) {
	delete(c, "groups")
	c["_claim_names"] = map[string]string{"groups": "src1"}
	c["_claim_sources"] = map[string]any{"src1": map[string]string{"endpoint": "https://graph.example/groups"}}
}

// hang answers when the client has gone. A server notices that only after it has read the body.
func hang(_ http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	<-r.Context().Done()
}

// refuse answers with an error of OAuth.
func refuse(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": code, "error_description": "a text of the provider, which nobody should log"})
}

func huge(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write([]byte(`{"access_token":"` + strings.Repeat("a", 2<<20) + `"}`))
}

// plain writes a token without a signature.
func plain(header, claims map[string]any) string {
	h, _ := json.Marshal(header)
	c, _ := json.Marshal(claims)
	return base64.RawURLEncoding.EncodeToString(h) + "." + base64.RawURLEncoding.EncodeToString(c)
}

func unsigned(_ *jose.JSONWebKey, header, claims map[string]any) string {
	header["alg"] = "none"
	return plain(header, claims) + "."
}

// confused signs with the public key as if it were a secret.
func confused(key *jose.JSONWebKey, header, claims map[string]any) string {
	header["alg"] = "HS256"
	public, _ := x509.MarshalPKIXPublicKey(key.Public().Key)
	mac := hmac.New(sha256.New, public)
	text := plain(header, claims)
	mac.Write([]byte(text))
	return text + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// relabelled names another algorithm than it signs with.
func relabelled(key *jose.JSONWebKey, header, claims map[string]any, alg string) string {
	signature := idp.Signed(key, header, claims)
	header["alg"] = alg
	return plain(header, claims) + signature[strings.LastIndex(signature, "."):]
}

// foreign is a key that the provider does not have.
var foreign = sync.OnceValue(func() *rsa.PrivateKey {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return key
})

// stranger signs with a key of its own, under the provider's kid.
func stranger(_ *jose.JSONWebKey, header, claims map[string]any) string {
	return idp.Signed(&jose.JSONWebKey{Key: foreign(), Algorithm: "RS256"}, header, claims)
}

// embedded brings its own key along.
func embedded(_ *jose.JSONWebKey, _, claims map[string]any) string {
	own := foreign()
	return idp.Signed(&jose.JSONWebKey{Key: own, Algorithm: "RS256"}, map[string]any{"jwk": &jose.JSONWebKey{Key: &own.PublicKey, KeyID: "own"}}, claims)
}

// swapped exchanges two characters of a signature.
func swapped(token string) string {
	b := []byte(token)
	at := len(b) - 20
	if b[at] == 'A' {
		b[at] = 'B'
	} else {
		b[at] = 'A'
	}
	return string(b)
}

// promoted changes claims after they were signed.
func promoted(key *jose.JSONWebKey, header, claims map[string]any) string {
	signature := idp.Signed(key, header, claims)
	claims["groups"] = []string{"getwork-admins", "loan-managers"}
	return plain(map[string]any{"alg": key.Algorithm, "kid": key.KeyID}, claims) + signature[strings.LastIndex(signature, "."):]
}
