package rights

import (
	"crypto/rand"
	"crypto/sha256"
	"hash/crc32"
	"math/big"
	"strings"
)

// A token is gw_ID_SECRETSUM in base 62: the id is public, the secret has 256 bits, and the sum is a CRC-32 of all before it,
// so that a mistyped token is refused without asking the database, and scanners can distinguish a token from chance.
const (
	digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

	idLength     = 12
	secretLength = 43
	sumLength    = 6
)

// base62 writes b as a number of n digits, most significant first.
func base62(b []byte, n int) string {
	v, base, rest := new(big.Int).SetBytes(b), big.NewInt(62), new(big.Int)
	out := make([]byte, n)
	for i := n - 1; i >= 0; i-- {
		v.DivMod(v, base, rest)
		out[i] = digits[rest.Int64()]
	}
	return string(out)
}

// publicID returns an id for lists and logs.
func publicID() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	return base62(b[:], idLength)
}

// newToken returns a token and its id.
func newToken() (id, token string) {
	id = publicID()
	return id, newTokenOf(id)
}

// newTokenOf returns a token of that id.
func newTokenOf(id string) string {
	var secret [32]byte
	_, _ = rand.Read(secret[:])
	token := "gw_" + id + "_" + base62(secret[:], secretLength)
	return token + sumOf(token)
}

// sumOf is the CRC-32 as base62 would write its four bytes.
func sumOf(text string) string {
	sum := crc32.ChecksumIEEE([]byte(text))
	var out [sumLength]byte
	for i := len(out) - 1; i >= 0; i-- {
		out[i] = digits[sum%62]
		sum /= 62
	}
	return string(out[:])
}

// IsToken reports whether a bearer credential claims to be a token of getwork.
func IsToken(bearer string) bool { return strings.HasPrefix(bearer, "gw_") }

// tokenID returns the id of a well-formed token. It comes with each call, so it is no regular expression.
func tokenID(token string) (id string, ok bool) {
	if len(token) != 3+idLength+1+secretLength+sumLength || !IsToken(token) || token[3+idLength] != '_' {
		return "", false
	}
	id, rest := token[3:3+idLength], token[3+idLength+1:]
	for _, c := range []byte(id + rest) {
		if (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') {
			return "", false
		}
	}
	body := token[:len(token)-sumLength]
	return id, sumOf(body) == token[len(body):]
}

// Hash is what the database keeps of a secret. It is fast and has no salt, because each call computes it, and a secret is 256 random
// bits, which nobody guesses. A secret that somebody chooses must not be kept so.
func Hash(secret string) []byte {
	sum := sha256.Sum256([]byte(secret))
	return sum[:]
}
