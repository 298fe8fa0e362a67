package serve

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"getwork/schema/schematest"
)

// Every connection uses UTF-8, whatever the database's encoding, including those of the listener and of migrations. What the URL says
// of pools is not sent to the server, which would refuse it.
func TestConnectionsSpeakUTF8(t *testing.T) {
	schematest.Long(t)
	url := schematest.Encoded(t, "LATIN1") + "&pool_max_conns=3"
	n := &node{config: Command{DatabaseURL: url}}
	for name, connect := range map[string]func(context.Context) (*pgx.Conn, error){
		"listener": n.connectDirectly, "migrations": Database{DatabaseURL: url}.connect,
	} {
		conn, err := connect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := conn.PgConn().ParameterStatus("client_encoding"); got != "UTF8" {
			t.Errorf("%s: client_encoding %s", name, got)
		}
		conn.Close(t.Context())
	}
}
