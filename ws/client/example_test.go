package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"getwork/assign"
	"getwork/ws/client"
)

// nodeURL returns the address of a node that has none of the examples' tasks yet, so that they may run again.
func nodeURL() string {
	url, err := client.NodeURL()
	if err != nil {
		log.Fatal(err)
	}
	boss := &client.Client{URL: url, User: "Mia", Role: "manager"}
	for _, task := range []string{"oldest-loans", "photos", "letters"} {
		if err := boss.DeleteTask(context.Background(), task); err != nil && client.KindOf(err) != assign.NotFound {
			log.Fatal(err)
		}
	}
	return url
}

// Ann asks for work, holds it, and completes it.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	url := nodeURL() // such as http://127.0.0.1:8080

	boss := &client.Client{URL: url, User: "Mia", Role: "manager"} // or Token
	task := assign.DefaultSettings()
	task.Name, task.Query = "oldest-loans", "select loan as item from (values ('L-1', 1), ('L-2', 2)) l (loan, since) order by since"
	if _, err := boss.CreateTask(ctx, task); err != nil {
		log.Fatal(err)
	}

	ann := &client.Client{URL: url, User: "Ann"}
	request, err := ann.GetWork(ctx, "oldest-loans", client.Click{Count: 1}, client.Wait(30*time.Second))
	if err == nil && request.State == assign.Pending {
		request, err = ann.AwaitRequest(ctx, request.ID)
	}
	if err != nil {
		log.Fatal(err)
	}
	for _, work := range request.Work {
		closed, err := ann.Dispose(ctx, work.ID, assign.Disposition{Outcome: "complete"})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(closed.Item, "is", closed.State)
	}
	// Output: L-1 is completed
}

// A refusal says what is wrong, in words and as a kind.
func ExampleProblem() {
	url := nodeURL()
	ann := &client.Client{URL: url, User: "Ann"}
	_, err := ann.ShowTask(context.Background(), "no-such-task")
	var problem *client.Problem
	if errors.As(err, &problem) {
		fmt.Println(problem.Status, problem.Type)
		fmt.Println(problem.Detail)
	}
	if client.KindOf(err) == assign.NotFound {
		fmt.Println("that is what a caller can branch on")
	}
	// Output:
	// 404 /problems/not-found
	// no task "no-such-task"; GET /api/v1/tasks lists all tasks
	// that is what a caller can branch on
}

// A change names the version that it was made from, so that it does not undo what somebody else changed meanwhile.
func ExampleIfMatch() {
	ctx := context.Background()
	url := nodeURL()
	boss := &client.Client{URL: url, User: "Mia", Role: "manager"}
	if _, err := boss.CreateTask(ctx, map[string]any{"name": "photos", "title": "Photos"}); err != nil {
		log.Fatal(err)
	}
	var read client.Answer
	if _, err := boss.ShowTask(ctx, "photos", client.Into(&read)); err != nil {
		log.Fatal(err)
	}
	for _, title := range []string{"All photos", "Some photos"} {
		_, err := boss.UpdateTask(ctx, "photos", map[string]any{"title": title}, client.IfMatch(read.Tag()))
		fmt.Printf("%s: changed %t, refused as %q\n", title, err == nil, client.KindOf(err))
	}
	// Output:
	// All photos: changed true, refused as ""
	// Some photos: changed false, refused as "stale-version"
}

// This program learns of pushed items, whatever happens to its connection.
func ExampleLive() {
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	url := nodeURL()
	boss := &client.Client{URL: url, User: "Mia", Role: "manager"}
	if _, err := boss.CreateTask(ctx, map[string]any{"name": "letters"}); err != nil {
		log.Fatal(err)
	}

	live := &client.Live{Client: &client.Client{URL: url, User: "postman"}, Handle: func(e client.Event) {
		switch {
		case e.Type == "snapshot": // later changes come as events
			if _, err := boss.PushItems(ctx, "letters", []assign.NewItem{{Item: "to Ann"}}); err != nil {
				log.Fatal(err)
			}
		case e.Type == "task" && e.Task.Shelf > 0:
			fmt.Println(e.Task.Name, "to be fetched:", e.Task.Shelf)
			stop()
		}
	}}
	live.Subscribe("letters")
	if err := live.Run(ctx); !errors.Is(err, context.Canceled) {
		log.Fatal(err)
	}
	// Output: letters to be fetched: 1
}
