package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// Sum is a SHA-256. It is written in hex.
type Sum [sha256.Size]byte

// String implements [fmt.Stringer].
func (s Sum) String() string { return hex.EncodeToString(s[:]) }

// MarshalText implements [encoding.TextMarshaler].
func (s Sum) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (s *Sum) UnmarshalText(text []byte) error {
	if hex.DecodedLen(len(text)) != len(s) {
		return fmt.Errorf("a SHA-256 has %d hex digits, not %d", hex.EncodedLen(len(s)), len(text))
	}
	_, err := hex.Decode(s[:], text)
	return err
}

// ScanBytes implements [pgtype.BytesScanner].
func (s *Sum) ScanBytes(b []byte) error {
	if len(b) != len(s) {
		return fmt.Errorf("a SHA-256 has %d bytes, not %d", len(s), len(b))
	}
	copy(s[:], b)
	return nil
}

// BytesValue implements [pgtype.BytesValuer].
func (s Sum) BytesValue() ([]byte, error) { return s[:], nil }

// Row is a row of the audit. Fields that are nil are the empty ones of [Actor] and [Act].
type Row struct {
	N          int64           `json:"n"` // from 1, without gaps
	At         time.Time       `json:"at"`
	Node       string          `json:"node"`
	Actor      *string         `json:"actor"`
	By         *string         `json:"by"`
	Credential *string         `json:"credential"`
	Address    *string         `json:"address"`
	Act        string          `json:"act"`
	Object     *string         `json:"object"`
	Outcome    string          `json:"outcome"`
	Detail     json.RawMessage `json:"detail"`
	Prev       Sum             `json:"prev"` // the Hash of the row before; zeros for the first
	Hash       Sum             `json:"hash"`
}

// Sum returns the hash that the row must have: the SHA-256 of its fields and of the hash before it. Each field is preceded by
// its length, so that no two rows give the same bytes. With any other form, all rows that were written before would look changed.
func (r *Row) Sum() (sum Sum) {
	h := sha256.New()
	field := func(text *string) {
		length := uint64(math.MaxUint64) // null, which is not the empty text
		if text != nil {
			length = uint64(len(*text))
		}
		_ = binary.Write(h, binary.BigEndian, length)
		if text != nil {
			h.Write([]byte(*text))
		}
	}
	for _, text := range []string{"getwork audit 1", strconv.FormatInt(r.N, 10), strconv.FormatInt(r.At.UnixMicro(), 10), r.Node, r.Act, r.Outcome, string(r.Detail), string(r.Prev[:])} {
		field(&text)
	}
	for _, text := range []*string{r.Actor, r.By, r.Credential, r.Address, r.Object} {
		field(text)
	}
	h.Sum(sum[:0])
	return sum
}

// columns are the columns that scan reads. An infinite time, which nobody writes, is read as none.
const columns = `n, case when isfinite(at) then at end, node, actor, by, credential, address, act, object, outcome, detail::text, prev, hash`

func scan(row pgx.CollectableRow) (r Row, err error) {
	var address *netip.Prefix
	var detail string
	var at *time.Time
	if err := row.Scan(&r.N, &at, &r.Node, &r.Actor, &r.By, &r.Credential, &address, &r.Act, &r.Object, &r.Outcome, &detail, &r.Prev, &r.Hash); err != nil {
		return r, err
	}
	if at != nil {
		r.At = at.UTC()
	}
	if address != nil {
		text := address.String()
		if address.IsSingleIP() {
			text = address.Addr().String()
		}
		r.Address = &text
	}
	r.Detail, err = canonical([]byte(detail))
	return r, err
}

// canonical returns JSON in the one form that is hashed, whatever blanks and order PostgreSQL prints it in. Numbers stay as they are
// written.
func canonical(text []byte) (json.RawMessage, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, fmt.Errorf("detail: %w", err)
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(storable(v)); err != nil {
		return nil, fmt.Errorf("detail: %w", err)
	}
	return bytes.TrimSpace(b.Bytes()), nil
}

// storable replaces what PostgreSQL can't store as text. What strangers send must not keep its own row out of the audit.
func storable(v any) any {
	switch v := v.(type) {
	case string:
		return storableText(v)
	case []any:
		for i := range v {
			v[i] = storable(v[i])
		}
	case map[string]any:
		clean := make(map[string]any, len(v))
		for name, one := range v {
			clean[storableText(name)] = storable(one)
		}
		return clean
	}
	return v
}

func storableText(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\ufffd"), "\x00", "\ufffd")
}

// orNull returns nil for the empty text.
func orNull(s string) *string {
	if s = storableText(s); s == "" {
		return nil
	}
	return &s
}
