# Names for commands; `go test ./...` alone works.
.PHONY: demo test lint

demo:
	go run ./cmd/getwork demo

test:
	go test -race -timeout 55m ./...

lint:
	golangci-lint run ./...
