# `make help` explains every target. Everything costly is built once, into a cache outside the checkout
# (go run ./hack/parts, SUBSTORM_CACHE), and shows its progress.
.DEFAULT_GOAL := help
.PHONY: help try pictures demo demo-storm demo-down test e2e e2e-all bench build send-binaries images cluster-up cluster-down generate golden tidy fmt lint lint-api check-generated

# Name of the benchmark in bench/ for `make bench` and its flags, nodes of the cluster for `make cluster-up`.
NAME ?=
FLAGS ?=
NODES ?= 1

PART = go run ./hack/parts path

# The packages whose tests write docs/reference, and fail where it is stale.
REFERENCE = ./internal/reference ./operator/cmd ./ingest-gateway/cmd ./archivist/cmd ./feed-server/cmd ./mirror-jobs/cmd ./metrics-bridge/cmd ./sender/cmd ./cli

# All modules are in go.work. Go's commands take `work` for all packages of them, golangci-lint takes their folders.
PACKAGES = $$(go list -m -f '{{.Dir}}/...')

# How programs are compiled, as in hack/compile: all who do it in the same way share what is compiled.
COMPILE = -trimpath -gcflags=all=-dwarf=false

help: ## List the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z0-9-]+:.*## / {printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

try: ## A whole Site in one process on this computer, with a camera and a magnetometer, and a page to look at; KEEP=FOLDER keeps its data, INGEST=0.0.0.0 receives from other computers too
	@./hack/needs.sh build
	@CGO_ENABLED=0 go run $(COMPILE) ./hack/try $(if $(KEEP),-keep $(KEEP)) $(if $(INGEST),-ingest $(INGEST))

pictures: ## Make the documentation's pictures anew, with Chromium
	@./hack/needs.sh pictures
	@go run ./bench/chromium/pictures
	@go run $(COMPILE) ./cli/cmd storm replay docs/samples/storm/kp.csv --manifests docs/samples/storm/site.yaml --draws 20 --plot docs/pictures/storm.svg

demo: ## A cluster, NATS, S3, Substorm and two instruments, with a real frame from camera to archive
	@./hack/needs.sh cluster images demo
	@go run ./hack/demo up

demo-storm: ## The same cluster through a recorded storm of four minutes: level, floor, pods and crowd, with a picture of them at the end
	@./hack/needs.sh cluster images demo
	@go run ./hack/demo storm

demo-down: ## Remove everything that demo made (the cache of built parts stays)
	@./hack/needs.sh build
	@go run ./hack/demo down

# Servers and compilers collect garbage less often, as memory is there. `go vet` has already found what `go test` would let it look for.
test: export GOGC = 400
test: ## Vet, unit and integration tests against the real NATS, S3, etcd and API servers
	@./hack/needs.sh test
	@go run ./hack/parts nats-server minio etcd kube-apiserver kube-controller-manager helm gotestsum >/dev/null
	go vet -tags e2e work
	@./hack/test.sh

e2e: ## Tests on real clusters of up to three nodes, about twenty minutes; needs root where there is no Docker
	@./hack/needs.sh cluster images
	@go run ./hack/parts gotestsum >/dev/null
	@./hack/test.sh e2e

e2e-all: e2e ## e2e, and the long ones: the memory budget with an object of 2 GiB, a list of a million objects, a day of 450,000 that expires, 300 absurd objects of each kind, outages of three, five and ten minutes, 300 faults under load with mirrors, what fits no node and what gives way on real pods, UARC's four set-ups
	SUBSTORM_TEST_LARGE_OBJECT=2147483648 go test -count 1 -timeout 30m -v -run TestBudget ./ingest-gateway
	SUBSTORM_TEST_LIST=1000000 go test -count 1 -timeout 30m -v -run TestListOfALargeFolder ./internal/objectstore
	SUBSTORM_TEST_MANY=1 go test -count 1 -timeout 30m -v -run TestMemoryOfManyObjects ./archivist/retention
	go test -count 1 -timeout 30m -run TestAbsurdPlans ./operator/plan -combinations 300
	SUBSTORM_TEST_OUTAGE=3m go test -count 1 -timeout 45m -v -run 'TestSpoolWhileAway|TestHiccups' ./ingest-gateway
	SUBSTORM_TEST_OUTAGE=10m go test -count 1 -timeout 45m -v -run TestOutage ./e2e/leaf
	SUBSTORM_TEST_OUTAGE=5m go test -count 1 -timeout 45m -v -run TestAPIServerAway ./operator/controller
	SUBSTORM_TEST_ROUNDS=300 go test -count 1 -timeout 60m -v -run TestFaults ./e2e/faults
	SUBSTORM_TEST_AUTOSCALING=1 go test -count 1 -timeout 30m -tags e2e -v -run 'TestCeiling|TestGivingWay' ./e2e
	./hack/bench.sh uarc

bench: ## List the benchmarks, or run one: make bench NAME=... FLAGS=...; results go to bench/results
	@./hack/needs.sh build
	@./hack/bench.sh $(NAME) $(FLAGS)

# With the versions of the product's own go.mod, as the images.
build: export GOWORK = off
build: ## Build the programs into bin/
	@./hack/needs.sh build
	CGO_ENABLED=0 go build $(COMPILE) -ldflags="-s -w" -o bin/operator ./operator/cmd
	CGO_ENABLED=0 go build $(COMPILE) -ldflags="-s -w" -o bin/ingest-gateway ./ingest-gateway/cmd
	CGO_ENABLED=0 go build $(COMPILE) -ldflags="-s -w" -o bin/archivist ./archivist/cmd
	CGO_ENABLED=0 go build $(COMPILE) -ldflags="-s -w" -o bin/feed-server ./feed-server/cmd
	CGO_ENABLED=0 go build $(COMPILE) -ldflags="-s -w" -o bin/mirror-jobs ./mirror-jobs/cmd
	CGO_ENABLED=0 go build -C metrics-bridge $(COMPILE) -ldflags="-s -w" -o ../bin/metrics-bridge ./cmd
	CGO_ENABLED=0 go build $(COMPILE) -ldflags="-s -w" -o bin/substorm ./cli/cmd

send-binaries: ## Build substorm-send for computers in the field (Linux, Windows; static) into bin/send/
	@./hack/needs.sh build
	@./hack/send-binaries.sh

images: ## Assemble the container images without an engine (with one: docker build --target NAME .)
	@./hack/needs.sh images
	@go run ./hack/images

cluster-up: ## A real Kubernetes on this machine: kind where Docker answers, bare elsewhere; NODES=1
	@./hack/needs.sh cluster
	@go run ./hack/cluster up --nodes $(NODES)

cluster-down: ## Remove that cluster
	@./hack/needs.sh build
	@go run ./hack/cluster down

generate: ## Write deepcopy functions and CRDs anew from operator/api, and docs/reference from what it describes
	@./hack/needs.sh build
	"$$($(PART) controller-gen)" object:headerFile=hack/boilerplate.go.txt paths=./operator/api/...
	"$$($(PART) controller-gen)" crd paths=./operator/api/... output:crd:dir=crds
	go test $(REFERENCE) -run TestReference -update

golden: ## Write golden files anew; then look at the diff: it is what the change does to the world
	@./hack/needs.sh build
	go test ./operator/plan ./operator/surge ./operator/surge/autoscale ./operator/surge/ceiling ./mirror-jobs/plan ./charts ./cli/archive ./cli/status -update
	go test ./ingest-gateway/store -run TestDecide -update
	go test ./internal/wire -golden

tidy: ## Bring go.mod and go.sum of each module up to date
	@./hack/needs.sh build
	@for module in $$(go list -m -f '{{.Dir}}'); do go mod tidy -C "$$module" || exit; done

fmt: ## Format Go code and sort imports
	@./hack/needs.sh build
	"$$($(PART) golangci-lint)" fmt

lint: ## Check the rules of the house (.golangci.yml) and the charts
	@./hack/needs.sh build
	"$$($(PART) golangci-lint)" run $(PACKAGES)
	@$(MAKE) --no-print-directory lint-api
	./hack/words.sh
	./hack/send-binaries.sh --vet
	@# Without what helm says for information: that it follows the link to crds.
	@said=$$("$$($(PART) helm)" lint --strict --quiet charts/substorm*/ 2>&1); failed=$$?; \
	echo "$$said" | sed '/^level=INFO /d; /^$$/d' >&2; exit $$failed

lint-api: ## Check the kinds in operator/api against Kubernetes' conventions (.golangci-api.yml)
	@./hack/needs.sh build
	"$$($(PART) golangci-lint)" run -c .golangci-api.yml ./operator/api/v1alpha1

check-generated: ## Fail where `make generate` or `make tidy` would change something
	@./hack/needs.sh build
	@./hack/check-generated.sh
	go test -count 1 $(REFERENCE) -run TestReference
