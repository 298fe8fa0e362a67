package oidc

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// token is a signed token in compact form, taken apart and not yet verified.
type token struct {
	raw       string
	algorithm string
	kind      string // typ, in lower case and without application/
	header    claims
	claims    claims
	payload   []byte
}

var errNotSigned = errors.New("not a signed token in compact form")

// parseToken takes a token apart. Nothing in it is to be believed.
func parseToken(raw string) (*token, error) {
	parts := strings.Split(raw, ".")
	if len(parts) != 3 || parts[2] == "" || strings.ContainsAny(raw, "\r\n") { // which the decoder would skip
		return nil, errNotSigned
	}
	t := &token{raw: raw}
	head, err := base64.RawURLEncoding.Strict().DecodeString(parts[0])
	if err != nil {
		return nil, errNotSigned
	}
	if t.payload, err = base64.RawURLEncoding.Strict().DecodeString(parts[1]); err != nil {
		return nil, errNotSigned
	}
	if t.header, err = parseClaims(head); err != nil {
		return nil, err
	}
	if t.claims, err = parseClaims(t.payload); err != nil {
		return nil, err
	}
	if t.algorithm, err = t.header.text("alg"); err != nil {
		return nil, err
	}
	kind, err := t.header.text("typ")
	if err != nil {
		return nil, err
	}
	t.kind = strings.TrimPrefix(strings.ToLower(kind), "application/")
	return t, nil
}

// verify checks the signature, and that the signed payload is the one that was read before.
func (t *token) verify(ctx context.Context, keys *keySet, own bool) error {
	payload, err := keys.verify(ctx, t.raw, own)
	if err == nil && !bytes.Equal(payload, t.payload) {
		return errSignature
	}
	return err
}

// audience reports whether a token is for a client, and whether for others as well.
func (t *token) audience(client string) (is, others bool) {
	aud, err := t.claims.list("aud")
	return err == nil && slices.Contains(aud, client), len(aud) > 1
}

// atHash is the at_hash of an access token, for a token with that signature.
func atHash(algorithm, access string) string {
	var sum []byte
	switch {
	case strings.HasSuffix(algorithm, "256"):
		s := sha256.Sum256([]byte(access))
		sum = s[:]
	case strings.HasSuffix(algorithm, "384"):
		s := sha512.Sum384([]byte(access))
		sum = s[:]
	default:
		s := sha512.Sum512([]byte(access))
		sum = s[:]
	}
	return base64.RawURLEncoding.EncodeToString(sum[:len(sum)/2])
}

// subject returns who a token is about.
func (c claims) subject() (string, error) {
	sub, err := c.text("sub")
	if err != nil || sub == "" || !storable(sub, 255) {
		return "", errForm
	}
	return sub, nil
}

// storable reports whether a text can be kept, and is what the provider sent: JSON's decoder replaces what is no UTF-8.
func storable(s string, most int) bool {
	return len(s) <= most && utf8.ValidString(s) && !strings.ContainsRune(s, utf8.RuneError) && !strings.ContainsFunc(s, unicode.IsControl)
}
