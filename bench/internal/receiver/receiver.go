// SPDX-License-Identifier: Apache-2.0

// Package receiver runs what benchmarks send objects to, each in a process of
// its own on the cores that it may use: the gateway, and its peers.
package receiver

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime/pprof"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/substorm/substorm/bench/internal/process"
	"github.com/substorm/substorm/internal/objectstore"
)

// Kind is a receiver.
type Kind string

// The receivers. All but Gateway and Site are peers; Hash is what nothing that
// computes a digest can beat by much.
const (
	// Old grows by one packet: the RTEMP of the study before its fix.
	Old Kind = "old RTEMP"
	// Static has 8 MB for each stream: the study's fix.
	Static Kind = "static 8 MB"
	// Hash reads into one buffer, computes the SHA-256 and forgets.
	Hash Kind = "hashing null sink"
	// Gateway is the ingest path by itself: TCP, intake, slabs, digest, ledger,
	// receipt; the store and JetStream take everything at once.
	Gateway Kind = "gateway, no store"
	// Site is the whole gateway with its store and JetStream.
	Site Kind = "gateway"
	// Archivist receives nothing: it lists what the gateway of Site announces.
	Archivist Kind = "archivist"
)

// Options of a receiver.
type Options struct {
	Kind Kind `json:"kind"`
	Port int  `json:"port"`
	// Dir is its folder, for scratch and counters.
	Dir string `json:"dir"`
	// Profile is a file that gets the processor's profile; empty for none.
	Profile string `json:"profile,omitempty"`
	// MemoryBudget in bytes of a gateway; 0 is its default.
	MemoryBudget int64 `json:"memoryBudget,omitempty"`
	// Datagrams: the port takes UDP instead of TCP (Gateway receives none).
	Datagrams bool `json:"datagrams,omitempty"`
	// Acknowledge is spelled as in an Instrument; empty for Stored.
	Acknowledge string `json:"acknowledge,omitempty"`
	// Framing is spelled as in an Instrument; empty for UntilClose.
	Framing string `json:"framing,omitempty"`
	// PackBelow is the size in bytes up to which objects share packs; 0 for none.
	PackBelow int64 `json:"packBelow,omitempty"`
	// PartInterval is how often the archivist beside Site closes manifest parts; 0 is a minute.
	PartInterval time.Duration `json:"partInterval,omitempty"`
	// Objects and NATS are the backends of a Site.
	Objects Bucket `json:"objects"`
	NATS    string `json:"nats,omitempty"`

	// HeapLimit in bytes is what the program sets for Go's heap under a memory
	// limit; 0 for none.
	HeapLimit int64 `json:"-"`
	// CPUs that it may use; nil for all.
	CPUs []int `json:"-"`
}

// Bucket is where a store is, over plain HTTP.
type Bucket struct {
	Endpoint        string `json:"endpoint"`
	Name            string `json:"name"`
	AccessKeyID     string `json:"accessKeyID"`
	SecretAccessKey string `json:"secretAccessKey"`
}

// BucketOf says where a test's server is.
func BucketOf(c objectstore.Config) Bucket {
	return Bucket{Endpoint: c.Endpoint, Name: c.Bucket, AccessKeyID: c.AccessKeyID, SecretAccessKey: c.SecretAccessKey}
}

// Config is what a client needs.
func (b Bucket) Config() objectstore.Config {
	return objectstore.Config{Endpoint: b.Endpoint, Bucket: b.Name, AccessKeyID: b.AccessKeyID, SecretAccessKey: b.SecretAccessKey}
}

// environment is where a child finds its options.
const environment = "SUBSTORM_BENCH_RECEIVER"

// Process is a receiver that runs.
type Process struct {
	Address string
	cmd     *exec.Cmd
	stdin   io.Closer
	// archivist works beside a gateway of kind Site.
	archivist *Process
}

// Port of the address.
func (p *Process) Port() int { return int(netip.MustParseAddrPort(p.Address).Port()) }

// PID of the process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Stop ends it, and returns once its profile is written.
func (p *Process) Stop() {
	if p.archivist != nil {
		p.archivist.Stop()
	}
	_ = p.stdin.Close()
	_ = p.cmd.Wait()
}

// PeakMiB is the most memory that was resident so far.
func (p *Process) PeakMiB() (float64, error) { return process.PeakMiB(p.PID()) }

// OpenFiles is how many files and sockets a process has open now.
func OpenFiles(pid int) int {
	all, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return 0
	}
	return len(all)
}

// Start starts a receiver, which ends with the lab at the latest.
func Start(l testing.TB, o Options) *Process {
	program, err := os.Executable()
	if err != nil {
		l.Fatal(err)
	}
	options, err := json.Marshal(o)
	if err != nil {
		l.Fatal(err)
	}
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), environment+"="+string(options))
	if o.HeapLimit > 0 {
		cmd.Env = append(cmd.Env, fmt.Sprintf("GOMEMLIMIT=%d", o.HeapLimit))
	}
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		l.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		l.Fatal(err)
	}
	if err := process.StartOn(cmd, o.CPUs); err != nil {
		l.Fatal(err)
	}
	p := &Process{cmd: cmd, stdin: stdin}
	l.Cleanup(p.Stop)
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		l.Fatalf("%s does not start: %v", o.Kind, err)
	}
	p.Address = strings.TrimSpace(line)
	return p
}

// Main is called first of all by a benchmark's main: in a child it serves until
// its parent closes its standard input, and does not return.
func Main() {
	text := os.Getenv(environment)
	if text == "" {
		return
	}
	if err := serve(text); err != nil {
		fmt.Fprintln(os.Stderr, "error: receiver:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func serve(text string) error {
	var o Options
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	if err := allFiles(); err != nil {
		return err
	}
	if o.Profile != "" {
		f, err := os.Create(o.Profile)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	ready := func(address string) { fmt.Println(address) }
	switch o.Kind {
	case Gateway:
		return serveGateway(ctx, o, ready)
	case Site:
		return serveSite(ctx, o, ready)
	case Archivist:
		return serveArchivist(ctx, o, ready)
	default:
		return serveSink(ctx, o, ready)
	}
}

// allFiles lets the process open as many files as it may.
func allFiles() error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	limit.Cur = limit.Max
	return syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit)
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", fmt.Sprint(port)) }
