package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"time"

	"getwork/assign"
	"getwork/ws/agent"
)

// This agent visits web sites, eight at a time, until it is stopped. Start it as often as you like, on any number of
// machines: only one of them visits each site.
func Example() {
	visit := func(ctx context.Context, w assign.Work) error {
		var details struct {
			Referrer string `json:"referrer"` // one of the item's details
		}
		if err := json.Unmarshal(w.Details, &details); err != nil {
			return fmt.Errorf("read the details: %w", err)
		}
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, w.Item, nil)
		if err != nil {
			return err // a retry won't help: it counts as an attempt, and the task limits those
		}
		request.Header.Set("Referer", details.Referrer)
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		switch answer.StatusCode {
		case http.StatusTooManyRequests:
			return agent.ReturnAfter(10*time.Minute, "they ask us to slow down")
		case http.StatusServiceUnavailable:
			return fmt.Errorf("%s: %w", answer.Status, agent.ErrLater)
		}
		return nil
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	crawler := &agent.Agent{
		URL:         "http://127.0.0.1:8080",
		User:        "crawler", // or Token
		Task:        "visit-site",
		Concurrency: 8,
		Lease:       time.Minute,
		Handler:     agent.HandlerFunc(visit),
		Log:         slog.Default(),
	}
	if err := crawler.Run(ctx); err != nil {
		slog.Error("the crawler ends", "error", err)
	}
}
