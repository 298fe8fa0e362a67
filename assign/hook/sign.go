package hook

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"strconv"
	"strings"
	"time"
)

// secretPrefix is before a secret's base64, as Standard Webhooks writes it.
const secretPrefix = "whsec_"

// newSecret returns a secret of 256 bits, and the form in which its receiver gets it.
func newSecret() (secret []byte, shown string) {
	secret = make([]byte, 32)
	_, _ = rand.Read(secret)
	return secret, secretPrefix + base64.StdEncoding.EncodeToString(secret)
}

// sign returns the value of webhook-signature: a signature by each secret, of the id, the time of the attempt and the body.
func sign(id string, at time.Time, body []byte, secrets ...[]byte) string {
	var signatures []string
	for _, secret := range secrets {
		if len(secret) == 0 {
			continue
		}
		mac := hmac.New(sha256.New, secret)
		_, _ = mac.Write([]byte(id + "." + strconv.FormatInt(at.Unix(), 10) + "."))
		_, _ = mac.Write(body)
		signatures = append(signatures, "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	}
	return strings.Join(signatures, " ")
}
