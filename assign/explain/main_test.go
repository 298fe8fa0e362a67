package explain_test

import (
	"os"
	"testing"

	"getwork/schema/schematest"
)

func TestMain(m *testing.M) { os.Exit(schematest.Main(m)) }
