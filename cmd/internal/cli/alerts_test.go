package cli

import (
	"os"
	"path/filepath"
	"testing"

	"getwork/assign"
	"getwork/cmd/internal/e2e"
)

func TestAlertsCommand(t *testing.T) {
	t.Parallel()
	c := e2e.NewTerminal(t)
	c.Run(0, e2e.Text("There are no alerts."), "alerts")
	c.Run(0, e2e.Text("[]"), "alerts", "--json")
	c.Run(0, nil, "task", "create", "--name", "photos", "--inbox")
	file := filepath.Join(t.TempDir(), "items.csv")
	if err := os.WriteFile(file, []byte("item,deadline\na,2020-01-31T12:00:00Z\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c.Run(0, nil, "items", "push", "photos", "-f", file)
	c.Run(1, e2e.Text("ALERT", "late", "photos", "see the alerts above"), "alerts")
	var alerts []assign.Alert
	c.Decode(1, &alerts, "alerts")
	if len(alerts) != 1 || alerts[0].Kind != assign.AlertLate || alerts[0].Count != 1 {
		t.Errorf("alerts are %+v", alerts)
	}
	c.Run(1, e2e.Text("your role is worker"), "alerts", "--role", "worker")
}
