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
	seen := manifests.SumOf(cfg.Manifests)                  // before they are read: what changes from now on is applied
	declared, err := Declared(cfg.Manifests, cfg.Namespace) // before anything is made: its errors are the most frequent
	if err != nil {
		return err
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
	s := &site{cfg: cfg, seen: seen, folder: f, mark: mark, collector: collector, log: cfg.Log, code: codeOf(declared), namespace: siteOf(declared).GetNamespace(), failed: make(chan error, 8)}
	s.manager.warn = func(err error) { s.log.Warn("the service manager cannot be told how this process is", "error", err) }
	if s.servers, err = newListeners(cfg.Listen); err != nil {
		return err
	}
	if err := s.servers.available(ctx, declared); err != nil {
		return err
	}
	return s.run(ctx, declared)
}

// run starts the parts, each after what it needs, and stops them in the opposite order.
func (s *site) run(ctx context.Context, declared []*manifests.Object) error {
	s.quiet()
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
	return s.runOn(ctx, &parts, declared)
}

// runOn runs the Site on the API that is served.
func (s *site) runOn(ctx context.Context, parts *stack, declared []*manifests.Object) error {
	if err := s.sameSite(ctx); err != nil {
		return err
	}
	if _, err := manifests.Apply(ctx, s.client, declared, s.log); err != nil {
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
	s.tell(ctx)
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

// sameSite errs where the data folder is of a Site with another code, whose resources would be removed for those of this one, or where
// the Site was in another namespace.
func (s *site) sameSite(ctx context.Context) error {
	before, err := manifests.SiteBefore(ctx, s.client)
	if err != nil || before == nil || s.code == "" {
		return err
	}
	is := codeOf([]*manifests.Object{{Unstructured: before}})
	if is == s.code {
		return s.sameNamespace(before.GetNamespace(), s.namespace)
	}
	declares := "the files declare"
	if len(s.cfg.Manifests) == 0 {
		declares = "without -f there is"
	}
	return fmt.Errorf("data folder %s is of the Site with code %q, and %s one with code %q: name the files of that Site with -f, or another folder with --data-dir",
		s.folder.path, is, declares, s.code)
}

// sameNamespace errs where a Site would move to another namespace: the keys of its NATS server are Secrets of the old one, and with new keys
// what the streams hold is not found.
func (s *site) sameNamespace(before, declared string) error {
	if before == declared {
		return nil
	}
	return fmt.Errorf("the Site of data folder %s is in namespace %q, and it would now be in namespace %q: "+
		"start with --namespace %s if the files name no namespace, else name %s in them, or name another folder with --data-dir",
		s.folder.path, before, declared, before, before)
}

// temporary has temporary files lie in the data folder: that of the machine may be in memory.
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
		return s.mark.Run(ctx, func(err error) { s.log.Warn("what expires waits longer after the next start", "error", err) })
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
	s.nats, err = natsserver.Start(ctx, natsserver.Config{Dir: s.folder.in("nats"), Domain: s.code, Accounts: accounts, MaxStore: s.budget.StreamBytes(), Log: s.log})
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
func (s *site) socket() string    { return s.folder.in("nats", "socket") }
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
		Apart: slices.Collect(maps.Keys(apart)), Override: s.override, Log: s.log, Last: []string{plan.ArchivistProgram}})
	parts.start("pods", func(ctx context.Context) error { s.pods.Run(ctx); return nil }, s.failed)
}

// follow applies the files anew after each change of them.
func (s *site) follow(ctx context.Context) error {
	if len(s.cfg.Manifests) == 0 {
		<-ctx.Done()
		return nil
	}
	return manifests.Watch(ctx, s.cfg.Manifests, s.seen, func() {
		declared, err := manifests.Up.Load(s.cfg.Manifests, s.cfg.Namespace)
		if is := siteOf(declared); err == nil && is == nil {
			err = errors.New("the files declare no Site any more: what runs here needs one")
		} else if err == nil && codeOf(declared) != s.code {
			err = fmt.Errorf("the files declare a Site with code %q, and this data folder is of %q: start another substorm up with a data folder of its own", codeOf(declared), s.code)
		}
		if err == nil {
			err = s.sameNamespace(s.namespace, siteOf(declared).GetNamespace())
		}
		if err != nil {
			s.log.Error("the files are not applied; what was applied before holds", "error", err)
			s.tellUnapplied(&plan.Manifests{Problems: manifests.Problems(err), Whole: true})
			return
		}
		changed, err := manifests.Apply(ctx, s.client, declared, s.log)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			s.log.Error("some of what the files declare is not applied", "error", err)
		}
		s.tellUnapplied(&plan.Manifests{Problems: manifests.Problems(err)})
		s.tellChange(ctx, changed)
	})
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
