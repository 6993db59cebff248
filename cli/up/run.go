// SPDX-License-Identifier: Apache-2.0

//go:build linux

package up

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/substorm/substorm/cli/up/kubeapi"
	"github.com/substorm/substorm/cli/up/manifests"
	"github.com/substorm/substorm/cli/up/natsserver"
	"github.com/substorm/substorm/cli/up/pods"
	"github.com/substorm/substorm/crds"
	"github.com/substorm/substorm/internal/diskbudget"
	"github.com/substorm/substorm/internal/highwater"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/usage"
	"github.com/substorm/substorm/operator"
	"github.com/substorm/substorm/operator/controller"
	"github.com/substorm/substorm/operator/plan"
	"github.com/substorm/substorm/operator/plan/workload"
)

// Config of Run.
type Config struct {
	// Manifests are files and folders; none: an empty Site that quarantines what arrives.
	Manifests []string
	// DataDir keeps everything. One process has it at a time.
	DataDir string
	// Namespace of objects that name none.
	Namespace string
	// Listen is where FeedServers serve, host:port: the first there, each further one at the next port.
	Listen string
	// ListenIngest is the IP address on which gateways receive; empty: all.
	ListenIngest string
	// ListenAPI is where the Kubernetes API is served: of loopback, since its token opens everything.
	ListenAPI string
	// PprofAddress is where profiles of the process are served; "0" for not at all.
	PprofAddress string
	// ListenMetrics is where metrics are served, host:port; empty: nowhere.
	ListenMetrics string
	// DiskBudget is how large the data folder may become, as a quantity; empty: as large as its disk allows, less a reserve.
	DiskBudget string
	// Stderr gets what people read, Log the lines of this process, of those from LogLevel on.
	Stderr   io.Writer
	Log      *slog.Logger
	LogLevel string
}

// site is a running Site.
type site struct {
	cfg Config
	// seen are the files that it was started with.
	seen    manifests.Sum
	folder  *folder
	mark    *highwater.Mark
	budget  *diskbudget.Budget
	log     *slog.Logger
	client  client.WithWatch
	nats    *natsserver.Server
	pods    *pods.Pods
	servers listeners
	code    string
	// namespace of the Site, where the keys of its servers are.
	namespace string
	// api is how to reach the Kubernetes API, and kubeconfig the file that says so.
	api        *rest.Config
	kubeconfig string
	// failed is the first error that ends the process, and stopping is set before its parts are stopped.
	failed   chan error
	stopping atomic.Bool
	// unapplied is what of the files is not applied; nil where all is. lost says what of the API's log could not be read.
	unapplied atomic.Pointer[plan.Manifests]
	lost      []string
	// libraries is where the libraries of Kubernetes log.
	libraries slog.Handler
	manager   manager
	collector *collector
	// own are the metrics of this program, beside those that it runs.
	own prometheus.Gatherer
}

// Run runs a Site until ctx ends, also during its start, stops it in order and returns nil. Errors: what keeps it from running, each with what to do.
func Run(ctx context.Context, cfg Config) (err error) {
	defer func() {
		if ctx.Err() != nil && errors.Is(err, context.Canceled) {
			err = nil
		}
		if errors.Is(err, syscall.ENOSPC) {
			err = fmt.Errorf("%w: free space on the disk of %s, or name another folder with --data-dir", err, cfg.DataDir)
		}
	}()
	collector := newCollector() // first: it bounds the garbage of the start
	if err := CheckClock(time.Now()); err != nil {
		return err
	}
	if _, err := DiskBudget(cfg.DiskBudget); err != nil {
		return usage.Errorf("%w", err)
	}
	if err := CheckAddresses(cfg.Listen, cfg.ListenAPI, cfg.ListenMetrics); err != nil {
		return err
	}
	if err := checkIngest(cfg.ListenIngest); err != nil {
		return err
	}
	seen := manifests.SumOf(cfg.Manifests) // before they are read: what changes from now on is applied
	files := readFiles(cfg)
	if files.err != nil && !hasRun(cfg.DataDir) { // before anything is made: these errors are the most frequent
		return files.err
	}
	f, err := openFolder(cfg.DataDir)
	if err != nil {
		return err
	}
	defer f.close()
	mark, err := highwater.Open(f.path, time.Now())
	if err != nil {
		return err
	}
	s := &site{cfg: cfg, seen: seen, folder: f, mark: mark, collector: collector, log: cfg.Log, failed: make(chan error, 8)}
	s.manager.warn = func(err error) {
		s.log.Warn("cannot report the state of this process to the service manager", "error", err)
	}
	if s.servers, err = newListeners(cfg.Listen); err != nil {
		return err
	}
	if err := s.servers.available(ctx, files.declared); err != nil {
		return err
	}
	return s.run(ctx, files)
}

// run starts the parts, each after what it needs, and stops them in the opposite order.
func (s *site) run(ctx context.Context, files files) error {
	s.redirectLibraryLogs()
	if err := s.temporary(); err != nil {
		return err
	}
	var parts stack
	defer parts.stop()
	defer s.stopping.Store(true)
	s.startMark(&parts)
	if err := s.startBudget(&parts); err != nil {
		return err
	}
	if err := s.startAPI(&parts); err != nil {
		return err
	}
	return s.runOn(ctx, &parts, files)
}

// runOn runs the Site on the API that is served.
func (s *site) runOn(ctx context.Context, parts *stack, files files) error {
	if err := s.applyAtStart(ctx, files); err != nil {
		return err
	}
	if err := s.startNATS(ctx, parts); err != nil {
		return err
	}
	s.startOperator(parts)
	s.startPods(parts)
	if err := s.startMetrics(parts); err != nil {
		return err
	}
	parts.start("manifests", func(ctx context.Context) error { return s.follow(ctx) }, s.failed)
	s.startWatchdog(parts)
	s.reportReadiness(ctx)
	parts.start("memory", s.tendMemory, s.failed)
	select {
	case <-ctx.Done():
		s.manager.stopping()
		fmt.Fprintln(s.cfg.Stderr, "Stopping: what was begun is finished. Interrupt once more to stop at once.")
		return nil
	case err := <-s.failed:
		return err
	}
}

// temporary places temporary files in the data folder: the machine's folder for them may be in memory.
func (s *site) temporary() error {
	if os.Getenv("TMPDIR") != "" {
		return nil
	}
	dir := s.folder.in("tmp")
	return errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o700), os.Setenv("TMPDIR", dir))
}

// startMark has what is removed for its age go by the newest time that the data folder has seen.
func (s *site) startMark(parts *stack) {
	highwater.Embed(s.mark)
	parts.push(func() { highwater.Embed(nil) })
	parts.start("clock", func(ctx context.Context) error {
		return s.mark.Run(ctx, func(err error) {
			s.log.Warn("cannot store the newest time; data expires later after the next start", "error", err)
		})
	}, s.failed)
}

// startAPI serves the Kubernetes API.
func (s *site) startAPI(parts *stack) error {
	api, err := kubeapi.Open(kubeapi.Config{Dir: s.folder.in("api"), Listen: s.cfg.ListenAPI, CRDs: crds.Files, Log: s.log})
	if errors.As(err, new(*net.OpError)) {
		return fmt.Errorf("--listen-api: %w: choose another address, or port 0 for a free one", err)
	}
	if err != nil {
		return err
	}
	s.lost = api.Lost()
	parts.start("Kubernetes API", api.Serve, s.failed)
	return s.useAPI(api.RESTConfig(), api.Kubeconfig())
}

func (s *site) useAPI(api *rest.Config, kubeconfig string) error {
	s.api, s.kubeconfig = api, kubeconfig
	scheme, err := operator.NewScheme()
	if err != nil {
		return err
	}
	s.client, err = client.NewWithWatch(api, client.Options{Scheme: scheme})
	return err
}

func (s *site) startNATS(ctx context.Context, parts *stack) error {
	if err := s.keysStand(); err != nil {
		return err
	}
	accounts, err := makeKeys(ctx, s.api, s.namespace, s.log)
	if err != nil {
		return err
	}
	s.nats, err = natsserver.Start(ctx, natsserver.Config{Dir: s.folder.in(natsFolder), Domain: s.code, Accounts: accounts, MaxStore: s.budget.StreamBytes(), Log: s.log})
	if err != nil {
		return err
	}
	stream.Embed(s.nats)
	parts.push(func() {
		s.nats.Stop()
		stream.Embed(nil)
	})
	parts.start("NATS server", s.nats.Tend, s.failed)
	parts.start("NATS socket", func(ctx context.Context) error { return s.nats.ServeSocket(ctx, s.socket()) }, s.failed)
	return s.tellServers(ctx, s.namespace)
}

// socket is where other processes reach the NATS server, and socketURL how they name it.
func (s *site) socket() string    { return s.folder.in(natsFolder, "socket") }
func (s *site) socketURL() string { return stream.SocketScheme + s.socket() }

// tellServers says in a Secret how commands of other processes reach the servers of this one.
func (s *site) tellServers(ctx context.Context, namespace string) error {
	own := plan.Standalone{}
	own.ObjectStore, own.JetStream = embedded(s.folder.in("objects"))
	own.JetStream.Servers = []string{s.socketURL()}
	data, err := json.Marshal(own)
	if err != nil {
		return err
	}
	secret := coreac.Secret(plan.StandaloneSecret, namespace).WithData(map[string][]byte{plan.KeyStandalone: data})
	return s.client.Apply(ctx, secret, client.FieldOwner("substorm-up"), client.ForceOwnership)
}

func (s *site) startOperator(parts *stack) {
	store, jetStream := embedded(s.folder.in("objects"))
	config := rest.CopyConfig(s.api)
	parts.start("operator", func(ctx context.Context) error {
		return operator.Run(ctx, operator.Config{
			Kubernetes: config, MetricsAddress: "0", ProbeAddress: "0", PprofAddress: s.cfg.PprofAddress, WatchSecrets: true, Log: slog.New(s.libraries),
			Images:     controller.Images{Gateway: inProcess, FeedServer: inProcess, Archivist: inProcess, Mirror: inProcess},
			Standalone: &plan.Standalone{ObjectStore: store, JetStream: jetStream, StreamBytes: s.budget.StreamBytes(), URL: s.servers.url},
			Link:       s.nats.Link, Disk: s.disk, Manifests: s.unapplied.Load,
		})
	}, s.failed)
}

// inProcess stands where pods name an image.
const inProcess = "substorm"

func (s *site) startPods(parts *stack) {
	s.pods = pods.New(pods.Config{Client: s.client, Folder: s.folder.path, Host: ingestHost(s.cfg.ListenIngest), Programs: s.programs(),
		Apart: slices.Collect(maps.Keys(apart)), Override: s.override, Log: s.log, Last: []string{workload.ArchivistProgram}})
	parts.start("pods", func(ctx context.Context) error { s.pods.Run(ctx); return nil }, s.failed)
}

// stack are parts that run, in the order of their start.
type stack struct{ ends []func() }

// push adds what ends a part.
func (s *stack) push(end func()) { s.ends = append(s.ends, end) }

// start runs a part until it is stopped; where it ends before, failed says why.
func (s *stack) start(name string, run func(context.Context) error, failed chan<- error) {
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		err := run(ctx)
		if ctx.Err() == nil {
			select {
			case failed <- fmt.Errorf("%s: %w", name, cmp.Or(err, errEnded)):
			default: // enough have failed
			}
		}
	})
	s.push(func() { cancel(); done.Wait() })
}

var errEnded = errors.New("it ended by itself")

// stop ends the parts, the last one first.
func (s *stack) stop() {
	for i := len(s.ends) - 1; i >= 0; i-- {
		s.ends[i]()
	}
}
