// SPDX-License-Identifier: Apache-2.0

// Command mirror-many measures how long 45 partners take to get an archive, alone and beside five more whose servers take connections and never answer.
//
// A Site in one process (`substorm up`) has the archive of one camera. Each partner is a MirrorPartner with a folder of its own at one real rsync daemon, and gets
// all of it. Time runs from the moment at which the partners are declared until the last of the 45 folders has every file with its size. A round declares new partners.
package main

import (
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/substorm/substorm/bench/internal/lab"
	"github.com/substorm/substorm/bench/internal/report"
	"github.com/substorm/substorm/bench/internal/standalone"
	"github.com/substorm/substorm/internal/testenv"
)

var (
	objects  = flag.Int("objects", 200, "how many objects the archive has")
	size     = flag.Int("size", 100_000, "bytes of an object")
	partners = flag.Int("partners", 45, "how many partners answer")
	stalled  = flag.Int("stalled", 5, "how many do not")
	rounds   = flag.Int("rounds", report.Rounds(5), "how often each is measured")
)

const (
	alone  = "alone"
	beside = "beside stalled ones"
	// patience is how long all partners may take.
	patience = 3 * time.Minute
)

func main() { lab.Run(run) }

func run(l *lab.Lab) error {
	flag.Parse()
	if *objects < 1 || *size < 1 || *partners < 1 || *stalled < 1 || *rounds < 1 {
		return errors.New("-objects, -size, -partners, -stalled and -rounds are at least 1")
	}
	s, err := start(l)
	if err != nil {
		return err
	}
	r := report.New("mirror-many", *rounds)
	r.Note("Each partner gets %d objects of %d bytes.", *objects, *size)
	for round := range r.Each() {
		for turn := range 2 {
			name, more := alone, 0
			if (turn+round)%2 == 1 {
				name, more = beside, *stalled
			}
			took, err := s.measure(fmt.Sprintf("r%d-%d", round, turn), more)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			r.Add("all have all", name, "s", took.Seconds())
		}
	}
	r.Compare("many-stalled", []report.Pair{{Case: "all have all", Candidate: beside, OfCase: "all have all", OfCandidate: alone}}, "<=", 1.1)
	return r.Finish()
}

// site is a Site in one process, and the daemon of its partners.
type site struct {
	manifests string
	daemon    string
	folder    string
	// silent takes connections and never answers.
	silent net.Listener
	tree   map[string]int64
}

const manifests = `apiVersion: substorm.dev/v1alpha1
kind: Site
metadata: {name: hub}
spec:
  code: hub
  objectStore: {endpoint: "https://embedded.invalid", bucket: archive, credentialsSecretRef: {name: s3}}
  jetStream: {servers: ["nats://embedded.invalid:4222"], accountKeySecretRef: {name: nats}, observations: {maxSize: 1Gi}, notices: {maxSize: 1Gi}}
  archivist: {partInterval: 1s}
---
apiVersion: substorm.dev/v1alpha1
kind: FeedServer
metadata: {name: hub}
spec: {siteRef: {name: hub}, replicas: 1}
---
apiVersion: substorm.dev/v1alpha1
kind: Instrument
metadata: {name: camera}
spec: {siteRef: {name: hub}, type: AllSkyCamera, access: {archive: Public}}
`

const partner = `---
apiVersion: substorm.dev/v1alpha1
kind: MirrorPartner
metadata: {name: %[1]s}
spec:
  siteRef: {name: hub}
  direction: Push
  protocol: Rsync
  rsync: {transport: Daemon, daemon: {address: %[2]q, module: data, path: %[1]s}}
  continuous: {interval: 24h}
  selection: {selector: {}}
`

// start starts a Site that has the archive.
func start(l *lab.Lab) (*site, error) {
	s := &site{manifests: filepath.Join(l.TempDir(), "manifests"), tree: map[string]int64{}}
	s.daemon, s.folder = testenv.RsyncDaemon(l, "max connections = 200\n")
	from := filepath.Join(l.TempDir(), "camera")
	if err := errors.Join(os.Mkdir(s.manifests, 0o755), os.Mkdir(from, 0o755), os.WriteFile(filepath.Join(s.manifests, "site.yaml"), []byte(manifests), 0o600)); err != nil {
		return nil, err
	}
	for i := range *objects {
		name := fmt.Sprintf("%05d.bin", i)
		if err := os.WriteFile(filepath.Join(from, name), append(make([]byte, *size-1), byte(i)), 0o600); err != nil {
			return nil, err
		}
		s.tree[filepath.Join("camera", "n", name)] = int64(*size)
	}
	up := testenv.StandaloneIn(l, filepath.Join(l.TempDir(), "data"), s.manifests)
	up.Start()
	if err := standalone.Import(up, from, "camera"); err != nil {
		return nil, err
	}
	var err error
	if s.silent, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, err
	}
	l.Cleanup(func() { _ = s.silent.Close() })
	return s, nil
}

// measure declares partners, and more that are stalled, and waits until all that answer have all.
func (s *site) measure(name string, more int) (time.Duration, error) {
	var text strings.Builder
	var open []string
	for i := range *partners {
		one := fmt.Sprintf("%s-%d", name, i)
		fmt.Fprintf(&text, partner, one, s.daemon)
		open = append(open, filepath.Join(s.folder, one))
	}
	for i := range more {
		fmt.Fprintf(&text, partner, fmt.Sprintf("%s-stalled-%d", name, i), s.silent.Addr())
	}
	file := filepath.Join(s.manifests, "partners.yaml")
	begun := time.Now()
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		return 0, err
	}
	for len(open) > 0 {
		if time.Since(begun) > patience {
			return 0, fmt.Errorf("%d of %d partners do not have all after %v", len(open), *partners, patience)
		}
		if !s.whole(open[0]) {
			time.Sleep(20 * time.Millisecond)
			continue
		}
		open = open[1:]
	}
	took := time.Since(begun)
	return took, os.WriteFile(file, nil, 0o600) // they go before the next ones come
}

// whole says whether a partner has every file.
func (s *site) whole(dir string) bool {
	for name, size := range s.tree {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() != size {
			return false
		}
	}
	return true
}
