# Names for commands. `make help` lists them; `go test ./...` alone works, too.
GOLANGCI_LINT ?= golangci-lint
T ?= ./...

.PHONY: help demo test all short race e2e lint bench matrix release baseline postgres upgrades pictures

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: ## run the demo: PostgreSQL, three nodes and a page
	go run ./cmd/getwork demo

test: ## the README's test command
	go test ./...

all: ## the same, and the thorough tests, and the laboratory: browsers, faults, fail-overs, torture; .ci/run runs them, too
	GETWORK_TEST_ALL=1 go test -timeout 30m ./...
	GETWORK_TEST_ALL=1 go -C cmd/lab test -count=1 -timeout 60m -skip '^TestRelease$$' ./...

short: ## what one process can show, on a real PostgreSQL; T=./assign/engine for one package
	go test -short $(T)

race: ## the engine, the live channel and the API with the race detector; T=./assign/engine for one package
	go test -race $(if $(filter ./...,$(T)),./assign/... ./notify ./ws/... ./web,$(T))

e2e: ## processes, pages and stories
	go test -race -timeout 30m ./cmd/getwork ./cmd/internal/cli ./cmd/internal/serve ./cmd/internal/demo ./cmd/internal/e2e/...
	go -C cmd/lab test -race -count=1 -timeout 60m ./page/... ./story ./fault

lint: ## format, vet and lint
	@test -z "$$(gofmt -l cmd notify assign ws web schema deploy | tee /dev/stderr)"
	go vet ./...
	go -C cmd/lab vet ./...
	$(GOLANGCI_LINT) run ./...
	cd cmd/lab && $(GOLANGCI_LINT) run ./...

pictures: ## take the pictures of the README and the guides, of the real page
	go -C cmd/lab test -count=1 -timeout 10m -run '^TestPictures$$' ./page/demo -pictures "$(CURDIR)/docs"

bench: ## how many clicks this machine can take, in two minutes
	go run ./cmd/getwork bench --quick

matrix: export GETWORK_TEST_ALL = 1
matrix: ## all fail-overs, modes, ends of rights and versions of PostgreSQL, an upgrade and a restore under load, defences switched off, all looks, a release made twice: hours
	GETWORK_TEST_FAILOVER=all GETWORK_TEST_ASYNC=1 go -C cmd/lab test -race -count=1 -timeout 55m -run Failover ./fault
	GETWORK_TEST_FAILOVER=all go -C cmd/lab test -race -count=1 -timeout 10m -run TestInstall ./story
	GETWORK_TEST_MODE=polling go test -race -count=1 -timeout 30m ./cmd/internal/e2e/story
	GETWORK_TEST_MODE=polling go -C cmd/lab test -race -count=1 -timeout 30m ./story ./fault
	GETWORK_TEST_MODE=pooled go test -race -count=1 -timeout 30m ./cmd/internal/e2e/story ./assign/engine
	GETWORK_TEST_MODE=pooled go -C cmd/lab test -race -count=1 -timeout 30m ./story ./fault
	GETWORK_TEST_ENDS=all go test -race -count=1 -timeout 10m -run TestRightsEndEverywhere ./cmd/internal/serve
	GETWORK_TEST_HOLES=1 go -C cmd/lab test -race -count=1 -timeout 90m ./torture
	for scenario in upgrade restore grants history encodings; do go -C cmd/lab run ./getwork-torture --scenario $$scenario --for 2m --every 1s --users 60 || exit 1; done
	$(MAKE) upgrades
	newer=$$(.ci/postgres 18) && GETWORK_TEST_NEWER="$$newer" go test -race -count=1 -timeout 15m -run Newer ./assign/engine
	for version in 14 16 17 18; do folder=$$(.ci/postgres $$version) && PATH="$$folder:$$PATH" $(MAKE) postgres || exit 1; done
	GETWORK_TEST_LOOKS=all go -C cmd/lab test -count=1 -timeout 30m -run States ./page/look
	go -C cmd/lab test -count=1 -timeout 90m ./deploy

postgres: ## the schema, the engine, stories, what breaks except fail-overs, and a minute of faults with the PostgreSQL that is first in PATH
	@postgres --version || { echo "put the folder of PostgreSQL's programs first in PATH, such as /usr/lib/postgresql/15/bin" >&2; exit 1; }
	go test -race -count=1 -timeout 30m ./schema/... ./assign/engine ./cmd/internal/e2e/story
	go -C cmd/lab test -race -count=1 -timeout 30m -skip 'Failover|Asynchronous' ./story ./fault
	go -C cmd/lab run ./getwork-torture --for 1m --every 300ms --users 120

upgrades: FORMER ?= $(shell git log -1 --format=%H -- schema/migrations/001_schema.sql)
upgrades: ## an earlier commit's program, FORMER=COMMIT, is upgraded to today's under load and faults, and back; needs git's history
	folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT && former=$$(.ci/former "$(FORMER)" "$$folder") && \
	  go -C cmd/lab run ./getwork-torture --scenario upgrade --former "$$former" --for 2m --every 1s --users 60

release: ## binaries, packages, images, SBOMs and checksums, into dist/
	deploy/release

baseline: ## with a release: later changes of the API are compared with what it is now
	cp web/openapi.json web/openapi.released.json
	: >web/openapi.grown
