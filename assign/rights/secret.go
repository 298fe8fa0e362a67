package rights

import (
	"crypto/rand"
	"crypto/sha256"
	"hash/crc32"
	"math/big"
	"regexp"
	"strings"
)

// A token is gw_ID_SECRETSUM in base 62: the id is public, the secret has 256 bits, and the sum is a CRC-32 of all before it,
// so that a mistyped token is refused without asking the database, and scanners can tell a token from chance.
var tokenForm = regexp.MustCompile(`^gw_[0-9A-Za-z]{12}_[0-9A-Za-z]{49}$`)

const (
	idLength     = 12
	secretLength = 43
	sumLength    = 6
)

// base62 writes b as a number of n digits, most significant first.
func base62(b []byte, n int) string {
	const digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
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

func sumOf(text string) string {
	sum := crc32.ChecksumIEEE([]byte(text))
	return base62([]byte{byte(sum >> 24), byte(sum >> 16), byte(sum >> 8), byte(sum)}, sumLength)
}

// IsToken reports whether a bearer credential claims to be a token of getwork.
func IsToken(bearer string) bool { return strings.HasPrefix(bearer, "gw_") }

// tokenID returns the id of a well-formed token.
func tokenID(token string) (id string, ok bool) {
	if !tokenForm.MatchString(token) {
		return "", false
	}
	body := token[:len(token)-sumLength]
	return token[3 : 3+idLength], sumOf(body) == token[len(body):]
}

// Hash is what the database keeps of a secret.
func Hash(secret string) []byte {
	sum := sha256.Sum256([]byte(secret))
	return sum[:]
}
