package oidc

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// shortestSecret is how long a client's secret is at least: it also seals.
const shortestSecret = 16

// ParseSecrets reads the file of --oidc-client-secret-file: one line, or two while a secret is changed. The first is used; both
// open what was sealed.
func ParseSecrets(file []byte) ([]string, error) {
	lines := strings.Split(strings.TrimRight(strings.ReplaceAll(string(file), "\r\n", "\n"), "\n"), "\n")
	switch {
	case len(lines) > 2:
		return nil, errors.New("a file with a client's secret has one line, or two: the new secret and the old one")
	case slices.ContainsFunc(lines, func(line string) bool { return len(line) < shortestSecret }):
		return nil, fmt.Errorf("a client's secret has at least %d characters in a line of its own", shortestSecret)
	}
	return lines, nil
}

// sealer seals under keys that follow from the client's secret, so that every node opens what another has sealed, and nobody
// does who has only the database.
type sealer struct{ secrets []string } // the first seals, all open

var errSealed = errors.New("it was sealed under another secret, or changed since")

// seal seals a text for one purpose. What it belongs to, such as a session's id, must be the same to open it: it is the salt
// of the key, and associated data.
func (s sealer) seal(purpose, belongs, text string) ([]byte, error) {
	aead, err := aeadOf(s.secrets[0], purpose, belongs)
	if err != nil {
		return nil, err
	}
	return aead.Seal(nil, nil, []byte(text), []byte(belongs)), nil
}

// open opens what seal has sealed under one of the secrets.
func (s sealer) open(purpose, belongs string, sealed []byte) (string, error) {
	for _, secret := range s.secrets {
		aead, err := aeadOf(secret, purpose, belongs)
		if err != nil {
			return "", err
		}
		if text, err := aead.Open(nil, nil, sealed, []byte(belongs)); err == nil {
			return string(text), nil
		}
	}
	return "", errSealed
}

// aeadOf returns AES-256-GCM that puts a random nonce before what it seals.
func aeadOf(secret, purpose, salt string) (cipher.AEAD, error) {
	key, err := hkdf.Key(sha256.New, []byte(secret), []byte(salt), purpose, 32)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}
