package pg

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// ReadText is a pool's AfterConnect function, for connections whose results may come as text, because their statements are not prepared.
// The login or the database may have set the form of that text for others. It is for getwork's own statements: what users' SQL
// makes of a date may depend on the style. Through a pooler their SQL shares these connections, and writes dates in this style.
func ReadText(ctx context.Context, conn *pgx.Conn) error {
	readTypes(conn)
	// Pgx reads times in this style alone. The order of day and month stays. Not a setting at the start of the connection: it would
	// fix the order, too, and PgBouncer would set it again for each transaction. PgBouncer remembers what is set here.
	if style := conn.PgConn().ParameterStatus("DateStyle"); style == "" || strings.HasPrefix(style, "ISO") {
		return nil
	}
	_, err := conn.Exec(ctx, `set datestyle = 'ISO'`)
	return err
}

// readTypes has times read as UTC, as the API shows them: otherwise they would be in the time zone of the node's machine. And it has
// bytes read in whatever form bytea_output asks for, which can't be set through a pooler.
func readTypes(conn *pgx.Conn) {
	types := conn.TypeMap()
	types.RegisterType(&pgtype.Type{Name: "timestamptz", OID: pgtype.TimestamptzOID, Codec: &pgtype.TimestamptzCodec{ScanLocation: time.UTC}})
	types.RegisterType(&pgtype.Type{Name: "bytea", OID: pgtype.ByteaOID, Codec: byteaCodec{}})
}

// byteaCodec is pgx's, which reads text in hex, and also reads text in the escape format.
type byteaCodec struct{ pgtype.ByteaCodec }

// PlanScan is part of [pgtype.Codec].
func (c byteaCodec) PlanScan(m *pgtype.Map, oid uint32, format int16, target any) pgtype.ScanPlan {
	plan := c.ByteaCodec.PlanScan(m, oid, format, target)
	if plan == nil || format != pgtype.TextFormatCode {
		return plan
	}
	return byteaScan{plan}
}

type byteaScan struct{ hex pgtype.ScanPlan }

// Scan is part of [pgtype.ScanPlan].
func (s byteaScan) Scan(text []byte, target any) error {
	if text == nil || bytes.HasPrefix(text, []byte(`\x`)) { // the escape format doubles a backslash
		return s.hex.Scan(text, target)
	}
	raw, err := unescape(text)
	if err != nil {
		return err
	}
	return s.hex.Scan(hex.AppendEncode([]byte(`\x`), raw), target)
}

// unescape reads the escape format of a bytea: a backslash is doubled, and \nnn is a byte in octal.
func unescape(text []byte) ([]byte, error) {
	raw := make([]byte, 0, len(text))
	for len(text) > 0 {
		switch {
		case text[0] != '\\':
			raw, text = append(raw, text[0]), text[1:]
		case len(text) > 1 && text[1] == '\\':
			raw, text = append(raw, '\\'), text[2:]
		default:
			n, err := strconv.ParseUint(string(text[1:min(4, len(text))]), 8, 8)
			if err != nil || len(text) < 4 {
				return nil, errors.New("bytea: a backslash without three octal digits; set bytea_output to hex or escape")
			}
			raw, text = append(raw, byte(n)), text[4:]
		}
	}
	return raw, nil
}
