// SPDX-License-Identifier: Apache-2.0

// Command mirror-bulk measures copies of large objects over a link with a round trip of 110 ms, with 1 to 128 connections, beside iperf3 and rclone, and HTTP/2 beside HTTP/1.1.
//
// Copies are made by `substorm mirror pull` at the far end of a link that delays packets (internal/testenv.Link), from a Site in one process that has the objects by
// `substorm import`. nginx serves the same files to rclone. With the link capped, copies go to a folder in memory (tmpfs) and are compared with what iperf3
// carries over the same link with as many connections; without a cap they go to the disk, and are compared with the slowest of the link, SHA-256 on one core and the
// disk with a sync. Each copy begins with an empty folder. Why mirrors speak HTTP/1.1 over several connections, and not HTTP/2 over one, the standard library's client shows:
// it fetches the same files in as many requests, over TLS, from a server of the standard library.
package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/substorm/substorm/bench/internal/lab"
	"github.com/substorm/substorm/bench/internal/report"
	"github.com/substorm/substorm/bench/internal/standalone"
	"github.com/substorm/substorm/bench/internal/wan"
	"github.com/substorm/substorm/bench/internal/web"
	"github.com/substorm/substorm/internal/testenv"
)

var (
	size        = flag.Int64("size", 300_000_000, "bytes of an object; the study has 100 MB to 2 GB")
	objects     = flag.Int("objects", 2, "how many objects are copied")
	roundTrip   = flag.Duration("round-trip", 110*time.Millisecond, "round trip of the link")
	limit       = flag.Int64("cap", 400_000_000, "bits a second of the capped link")
	connections = flag.String("connections", "1,8,32,128", "how many connections")
	rounds      = flag.Int("rounds", report.Rounds(5), "how often each is measured")
)

const (
	ours   = "substorm mirror pull"
	iperf  = "iperf3"
	rclone = "rclone copy"
	http1  = "net/http, HTTP/1.1"
	http2  = "net/http, HTTP/2"
	unit   = "MB/s"
	// atLeast are the connections from which on one of them is not what bounds a copy.
	atLeast = 8
)

func main() {
	lab.RunIsolated(run, wan.Main)
}

func run(l *lab.Lab) error {
	flag.Parse()
	var numbers []int
	for text := range strings.SplitSeq(*connections, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return fmt.Errorf("-connections %q", *connections)
		}
		numbers = append(numbers, n)
	}
	if *size < 1 || *objects < 1 || *rounds < 1 {
		return errors.New("-size, -objects and -rounds are at least 1")
	}
	s, err := start(l)
	if err != nil {
		return err
	}
	r := report.New("mirror-bulk", *rounds)
	r.Note("%d objects of %d bytes, behind %v.", *objects, *size, *roundTrip)
	for range r.Each() {
		for _, capped := range []bool{true, false} {
			if err := l.Part(func() error { return s.measure(l, r, numbers, capped) }); err != nil {
				return err
			}
		}
	}
	s.conclude(r, numbers)
	return r.Finish()
}

// site is a Site in one process that has the objects, and its peers.
type site struct {
	program, port, webPort string
	memory, disk           string
	bytes                  int64
	// files are the objects, and secure serves them over TLS.
	files  []wan.Object
	secure *wan.Server
}

const manifests = `apiVersion: substorm.dev/v1alpha1
kind: Site
metadata: {name: hub}
spec:
  code: hub
  objectStore: {endpoint: "https://embedded.invalid", bucket: archive, credentialsSecretRef: {name: s3}}
  jetStream: {servers: ["nats://embedded.invalid:4222"], accountKeySecretRef: {name: nats}}
  archivist: {partInterval: 1s}
---
apiVersion: substorm.dev/v1alpha1
kind: FeedServer
metadata: {name: hub}
spec: {siteRef: {name: hub}, replicas: 1}
---
apiVersion: substorm.dev/v1alpha1
kind: Instrument
metadata: {name: radar}
spec: {siteRef: {name: hub}, type: Radar, access: {archive: Public}}
`

func start(l *lab.Lab) (*site, error) {
	s := &site{disk: filepath.Join(l.TempDir(), "disk"), memory: filepath.Join(l.TempDir(), "memory"), bytes: *size * int64(*objects)}
	from := filepath.Join(l.TempDir(), "radar")
	file := filepath.Join(l.TempDir(), "site.yaml")
	if err := errors.Join(os.Mkdir(from, 0o755), os.Mkdir(s.memory, 0o755), os.WriteFile(file, []byte(manifests), 0o600)); err != nil {
		return nil, err
	}
	for i := range *objects {
		name := fmt.Sprintf("%d.bin", i)
		if err := write(filepath.Join(from, name), io.LimitReader(rand.Reader, *size)); err != nil {
			return nil, err
		}
		s.files = append(s.files, wan.Object{Path: name, Size: *size})
	}
	if out, err := exec.Command("mount", "-t", "tmpfs", "substorm-bench", s.memory).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("mount a folder in memory: %w: %s", err, out)
	}
	up := testenv.StandaloneAt(l, "0.0.0.0", filepath.Join(l.TempDir(), "data"), file)
	up.Start()
	s.program = up.Program()
	_, s.port, _ = net.SplitHostPort(strings.TrimPrefix(up.URL, "http://"))
	if err := standalone.Import(up, from, "radar"); err != nil {
		return nil, err
	}
	var err error
	if s.secure, err = wan.Serve(l, http.StripPrefix("/archive/"+wan.Instrument, http.FileServer(http.Dir(from))), true); err != nil {
		return nil, err
	}
	s.webPort, err = web.ServeFolder(l, from)
	return s, err
}

func write(name string, from io.Reader) error {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, from)
	return errors.Join(err, file.Sync(), file.Close())
}

// measure copies over one link with each number of connections, by each candidate in turn.
func (s *site) measure(l *lab.Lab, r *report.Report, numbers []int, capped bool) error {
	o, to := testenv.LinkOptions{RoundTrip: *roundTrip}, s.disk
	if capped {
		o.Rate, to = *limit/8, s.memory
	}
	link := testenv.NewLink(l, o)
	for _, n := range numbers {
		name := caseOf(n, capped)
		carried, err := iperfed(l, link, n)
		if err != nil {
			return err
		}
		r.Add(name, iperf, unit, carried)
		copies := filepath.Join(to, "copy")
		for candidate, argv := range map[string][]string{
			ours: {s.program, "mirror", "pull", "http://" + net.JoinHostPort(link.Near(), s.port), copies, "-q", "--connections", strconv.Itoa(n)},
			rclone: {"rclone", "copy", "--config", "/dev/null", "--transfers", strconv.Itoa(*objects),
				"--multi-thread-streams", strconv.Itoa(max(1, n / *objects)), "--multi-thread-cutoff", "8M",
				"--http-url", "http://" + net.JoinHostPort(link.Near(), s.webPort), ":http:", copies},
		} {
			begun := time.Now()
			if out, err := link.Far(context.Background(), argv[0], argv[1:]...).CombinedOutput(); err != nil {
				return fmt.Errorf("%s: %w\n%.2000s", candidate, err, out)
			}
			r.Add(name, candidate, unit, float64(s.bytes)/1e6/time.Since(begun).Seconds())
			if err := os.RemoveAll(copies); err != nil {
				return err
			}
		}
		if capped {
			if err := s.protocols(r, link, name, n); err != nil {
				return err
			}
		}
	}
	if !capped {
		return s.bounds(r)
	}
	return nil
}

// protocols has the standard library fetch the files to memory by both, with so many requests at the same time.
func (s *site) protocols(r *report.Report, link *testenv.Link, name string, n int) error {
	for candidate, client := range map[string]wan.Client{http1: wan.HTTP1, http2: wan.HTTP2} {
		rate, err := wan.Fetch(link, wan.Order{Client: client, URL: s.secure.URL(link.Near()), CA: s.secure.CA, Requests: n, Objects: s.files})
		if err != nil {
			return fmt.Errorf("%s: %w", candidate, err)
		}
		r.Add(name, candidate, unit, rate/1e6)
	}
	return nil
}

func caseOf(n int, capped bool) string {
	if capped {
		return fmt.Sprintf("capped, to memory, %d connections", n)
	}
	return fmt.Sprintf("uncapped, to disk, %d connections", n)
}

// iperfed is what iperf3 carries from the near end to the far one.
func iperfed(l *lab.Lab, link *testenv.Link, n int) (float64, error) {
	port, stop, err := wan.Iperf3(l)
	if err != nil {
		return 0, err
	}
	defer stop()
	for range testenv.Attempts() { // until it listens
		var out []byte
		if out, err = link.Far(context.Background(), "iperf3", "-c", link.Near(), "-p", port, "-R", "-P", strconv.Itoa(n), "-t", "5", "-J").Output(); err == nil {
			var is struct {
				End struct {
					Received struct {
						BitsPerSecond float64 `json:"bits_per_second"`
					} `json:"sum_received"`
				} `json:"end"`
			}
			err = json.Unmarshal(out, &is)
			return is.End.Received.BitsPerSecond / 8e6, err
		}
	}
	return 0, fmt.Errorf("iperf3: %w", err)
}

// bounds measures what a copy to the disk cannot be faster than, beside the link.
func (s *site) bounds(r *report.Report) error {
	data := bytes.Repeat([]byte("0123456789abcdef"), 1<<20)
	begun := time.Now()
	h := sha256.New()
	for range 16 {
		h.Write(data)
	}
	r.Add("bounds", "SHA-256 on a core", unit, float64(16*len(data))/1e6/time.Since(begun).Seconds())
	name := filepath.Join(filepath.Dir(s.disk), "probe")
	begun = time.Now()
	if err := write(name, io.LimitReader(zeros{}, s.bytes)); err != nil {
		return err
	}
	r.Add("bounds", "disk, synced", unit, float64(s.bytes)/1e6/time.Since(begun).Seconds())
	return os.Remove(name)
}

// zeros never end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// conclude compares what connections from atLeast on carried.
func (s *site) conclude(r *report.Report, numbers []int) {
	for _, n := range numbers {
		if n < atLeast {
			continue
		}
		capped, uncapped := caseOf(n, true), caseOf(n, false)
		r.Compare(fmt.Sprintf("bulk-capped-%d-of-iperf3", n), []report.Pair{{Case: capped, Candidate: ours, OfCase: capped, OfCandidate: iperf}}, ">=", 0.95)
		r.Compare(fmt.Sprintf("bulk-capped-%d-of-rclone", n), []report.Pair{{Case: capped, Candidate: ours, OfCase: capped, OfCandidate: rclone}}, ">=", 1)
		r.Compare(fmt.Sprintf("bulk-capped-%d-http2-of-http1", n), []report.Pair{{Case: capped, Candidate: http2, OfCase: capped, OfCandidate: http1}}, "", 0)
		var shares []float64
		mine, link, sum, disk := r.Values(uncapped, ours), r.Values(uncapped, iperf), r.Values("bounds", "SHA-256 on a core"), r.Values("bounds", "disk, synced")
		for i := range mine {
			shares = append(shares, mine[i]/min(link[i], sum[i], disk[i]))
		}
		r.Bound(fmt.Sprintf("bulk-disk-%d-of-slowest", n), shares, ">=", 0.9)
	}
}
