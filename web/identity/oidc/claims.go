package oidc

import (
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// claims are what a token or the userinfo endpoint says, by exact name. A struct's fields would also take names in other
// capitals, which a provider's user may have filled.
type claims map[string]json.RawMessage

// errForm means that a claim is there, and is not of the form that it must have.
var errForm = errors.New("a claim has another form than it must have")

func parseClaims(payload []byte) (claims, error) {
	var c claims
	// encoding/json would make one name of two that differ in what is no UTF-8.
	if err := json.Unmarshal(payload, &c); err != nil || c == nil || !utf8.Valid(payload) {
		return nil, errForm
	}
	return c, nil
}

// has reports whether a claim is there, null included.
func (c claims) has(name string) bool {
	_, ok := c[name]
	return ok
}

// text returns a claim that is a string; empty if it is missing.
func (c claims) text(name string) (string, error) {
	raw, ok := c[name]
	if !ok {
		return "", nil
	}
	return text(raw)
}

// is reports whether a claim is this string.
func (c claims) is(name, want string) bool {
	got, err := c.text(name)
	return err == nil && got == want && c.has(name)
}

// moment returns a claim that is a time in seconds; zero if it is missing.
func (c claims) moment(name string) (time.Time, error) {
	raw, ok := c[name]
	if !ok {
		return time.Time{}, nil
	}
	seconds, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || !(seconds >= 0 && seconds < 1e11) {
		return time.Time{}, errForm
	}
	whole, part := math.Modf(seconds)
	return time.Unix(int64(whole), int64(part*1e9)), nil
}

// list returns a claim that is a list of strings, or one string. A missing one is nil.
func (c claims) list(name string) ([]string, error) {
	raw, ok := c[name]
	if !ok {
		return nil, nil
	}
	return list(raw)
}

func text(raw json.RawMessage) (string, error) {
	var s *string // null is no string
	if err := json.Unmarshal(raw, &s); err != nil || s == nil {
		return "", errForm
	}
	return *s, nil
}

func list(raw json.RawMessage) ([]string, error) {
	if s, err := text(raw); err == nil {
		return []string{s}, nil
	}
	var all []json.RawMessage
	if err := json.Unmarshal(raw, &all); err != nil || all == nil {
		return nil, errForm
	}
	texts := make([]string, len(all))
	for i, raw := range all {
		s, err := text(raw)
		if err != nil {
			return nil, err
		}
		texts[i] = s
	}
	return texts, nil
}

// Path leads to a claim, also into nested ones: realm_access.roles. A dot that belongs to a name is written \., and a
// backslash \\. A claim whose name is the whole of a path comes first, so that https://bank.example/groups needs no
// backslash.
type Path struct {
	whole string
	steps []string
}

// ParsePath parses a path of --oidc-groups-claim or --oidc-name-claim.
func ParsePath(s string) (Path, error) {
	p := Path{whole: s}
	var step strings.Builder
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '\\' && i+1 < len(s) && (s[i+1] == '.' || s[i+1] == '\\'):
			i++
			step.WriteByte(s[i])
		case s[i] == '\\':
			return Path{}, errors.New(`a claim's path has a backslash only before a dot or another backslash`)
		case s[i] == '.':
			p.steps = append(p.steps, step.String())
			step.Reset()
		default:
			step.WriteByte(s[i])
		}
	}
	p.steps = append(p.steps, step.String())
	if len(s) > 256 || len(p.steps) > 8 || slices.Contains(p.steps, "") {
		return Path{}, errors.New("a claim's path is a name, or up to 8 names with dots between them, such as realm_access.roles")
	}
	return p, nil
}

// in returns the claim that the path leads to. A claim that is null is missing.
func (p Path) in(c claims) (raw json.RawMessage, found bool) {
	if raw, found = c[p.whole]; !found {
		for i, step := range p.steps {
			if raw, found = c[step]; !found {
				return nil, false
			}
			c = nil
			if i < len(p.steps)-1 && json.Unmarshal(raw, &c) != nil {
				return nil, false
			}
		}
	}
	return raw, found && string(raw) != "null"
}

// elsewhere reports whether the claim is left out because it is too large: the token then says where to ask for it. Entra
// does so from 200 groups on.
func (p Path) elsewhere(c claims) bool {
	if raw, found := c["_claim_names"]; found {
		var names map[string]json.RawMessage
		if json.Unmarshal(raw, &names) != nil {
			return true // not understood
		}
		for _, name := range []string{p.whole, p.steps[0]} {
			if _, there := names[name]; there {
				return true
			}
		}
	}
	return p.whole == "groups" && c.has("hasgroups")
}
