package oidc

import (
	"context"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	jose "github.com/go-jose/go-jose/v4"
)

const (
	mostKeys = 100 // of a set; a token without a kid is tried with each

	// strangersFetch is how often keys are fetched because somebody sent a token with an unknown key, whoever it was. A kid
	// that a set of this age lacks is refused without asking.
	strangersFetch = time.Minute

	// ownFetch is the same for tokens that the provider gave to this node itself, which nobody else can forge: a log-in right
	// after the provider took a new key into use must not fail for a minute.
	ownFetch = 10 * time.Second
)

var (
	errSignature = errors.New("no key of the issuer made this signature")
	errKeysAway  = errors.New("the issuer's keys can't be read now")
)

// keySet has an issuer's public keys. go-oidc's own set fetches for every signature that it can't verify.
type keySet struct {
	now     func() time.Time
	read    func(context.Context) ([]jose.JSONWebKey, error)
	fetches atomic.Int64

	mu       sync.Mutex
	keys     []jose.JSONWebKey // nil: never read
	asked    time.Time         // when keys were last asked for
	askedOwn time.Time         // when they were last asked for because of a token that the provider itself gave
	failed   bool              // the last time
	readings int               // how often they were asked for
	reading  chan struct{}     // closed when the call under way ends; nil: none
}

// asked is the set as go-oidc asks it, about one token. go-oidc makes a text of its error.
type asked struct {
	*keySet
	own bool // the provider gave the token to this node
	err error
}

// VerifySignature returns the payload of a token that one of the keys signed.
func (a *asked) VerifySignature(ctx context.Context, token string) (payload []byte, err error) {
	payload, a.err = a.verify(ctx, token, a.own)
	return payload, a.err
}

// verify returns the payload of a token that one of the keys signed. The caller has checked that the header's algorithm is
// one that it accepts.
func (k *keySet) verify(ctx context.Context, token string, own bool) ([]byte, error) {
	jws, err := jose.ParseSignedCompact(token, joseAlgorithms)
	if err != nil || len(jws.Signatures) != 1 {
		return nil, errNotSigned
	}
	header := jws.Signatures[0].Protected
	for {
		keys, age := k.current()
		known := false
		for i := range keys {
			if header.KeyID != "" && keys[i].KeyID != header.KeyID {
				continue
			}
			known = header.KeyID != ""
			if keys[i].Algorithm != "" && keys[i].Algorithm != header.Algorithm {
				continue
			}
			if payload, err := jws.Verify(&keys[i]); err == nil {
				return payload, nil
			}
		}
		if known {
			return nil, errSignature // newer keys would not change that
		}
		if err := k.newer(ctx, age, own); err != nil {
			return nil, err
		}
	}
}

// current returns the keys, and which reading they are of.
func (k *keySet) current() (keys []jose.JSONWebKey, reading int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.keys, k.readings
}

// newer returns when there may be newer keys than those of a reading. It fails if there are none now: then nobody may fetch
// them yet, or they can't be read.
func (k *keySet) newer(ctx context.Context, than int, own bool) error {
	k.mu.Lock()
	if k.readings != than {
		k.mu.Unlock()
		return nil
	}
	if wait := k.reading; wait != nil {
		k.mu.Unlock()
		select {
		case <-wait:
			return nil
		case <-ctx.Done():
			return errKeysAway
		}
	}
	last, every := k.asked, strangersFetch
	if own {
		last, every = k.askedOwn, ownFetch
	}
	if since := k.now().Sub(last); !last.IsZero() && since >= 0 && since < every {
		defer k.mu.Unlock()
		if k.failed || k.keys == nil {
			return errKeysAway
		}
		return errSignature
	}
	k.begin(own)
	k.mu.Unlock()
	k.fetch(ctx)
	return nil
}

// begin notes that the caller fetches. k.mu is held.
func (k *keySet) begin(own bool) {
	k.asked, k.reading = k.now(), make(chan struct{})
	if own {
		k.askedOwn = k.asked
	}
}

// fetch fetches the keys, and lets those go on who wait for it. The caller has called begin, and does not hold k.mu. It goes on when its
// caller goes away, since others wait, but not past the caller's deadline.
func (k *keySet) fetch(ctx context.Context) {
	k.fetches.Add(1)
	stays := context.WithoutCancel(ctx)
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		stays, cancel = context.WithDeadline(stays, deadline)
		defer cancel()
	}
	keys, err := k.read(stays)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.failed = err != nil; err == nil {
		k.keys = keys
	}
	k.readings++
	close(k.reading)
	k.reading = nil
}

// refresh fetches the keys, unless that was done within the last minute and succeeded. It returns errKeysAway if they could not be read
// the last time.
func (k *keySet) refresh(ctx context.Context) error {
	k.mu.Lock()
	since := k.now().Sub(k.asked)
	due := k.reading == nil && (k.asked.IsZero() || since < 0 || since >= strangersFetch || k.failed)
	if due {
		k.begin(false)
	}
	k.mu.Unlock()
	if due {
		k.fetch(ctx)
	}
	if k.away() {
		return errKeysAway
	}
	return nil
}

// away reports whether keys could not be read the last time.
func (k *keySet) away() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.failed || k.keys == nil
}

// readKeys reads the issuer's keys from where discovery says that they are.
func (s *Source) readKeys(ctx context.Context) ([]jose.JSONWebKey, error) {
	m := s.found.Load()
	if m == nil {
		return nil, errKeysAway
	}
	body, err := s.get(ctx, m.Keys, "")
	if err != nil {
		return nil, err
	}
	return parseKeys(body)
}

// parseKeys returns the keys of a set that can verify signatures. Keys that this program does not understand are not for
// it, and are left out; symmetric ones would let whoever reads the set sign.
func parseKeys(body []byte) ([]jose.JSONWebKey, error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(body, &set); err != nil {
		return nil, errors.New("the issuer's keys are not a JSON Web Key Set")
	}
	var keys []jose.JSONWebKey
	for _, raw := range set.Keys {
		var key jose.JSONWebKey
		if err := json.Unmarshal(raw, &key); err != nil || key.Use == "enc" || !key.Valid() || !key.IsPublic() {
			continue
		}
		if weak, ok := key.Key.(*rsa.PublicKey); ok && weak.N.BitLen() < 2048 {
			continue
		}
		if key.Algorithm != "" && !slices.Contains(everyAlgorithm, key.Algorithm) {
			continue
		}
		if keys = append(keys, key); len(keys) == mostKeys {
			break
		}
	}
	if len(keys) == 0 {
		return nil, errors.New("the issuer's key set has no key that can be used")
	}
	return keys, nil
}
