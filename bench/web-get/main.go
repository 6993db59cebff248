// SPDX-License-Identifier: Apache-2.0

// Command web-get measures GET of 200 KB: a hot object beside nginx with the same file, cold ones beside the S3 server that they come from.
package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"golang.org/x/sync/errgroup"

	"github.com/substorm/substorm/bench/internal/lab"
	"github.com/substorm/substorm/bench/internal/report"
	"github.com/substorm/substorm/bench/internal/web"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// secondsVariable is how long each measurement takes.
	secondsVariable = "SUBSTORM_BENCH_WEB_TIME"
	size            = 200_000
	// coldObjects are asked for in turn; a small part of them fits into the memory that feed-server has.
	coldObjects = 1000
	memory      = 16 << 20
	instrument  = "allsky-1"
	connections = 16
)

var rounds = report.Rounds(5)

// The cases and candidates.
const (
	hot = "hot"
	// Cold, with the core beside wrk's and the S3 server's, and with wrk's.
	alone, cold          = "cold, a core of its own", "cold, a core with wrk"
	ours, peer, s3server = "feed-server", "nginx", "MinIO"
)

func main() { lab.Run(run) }

func run(l *lab.Lab) error {
	ctx := context.Background()
	during, err := lab.Duration(secondsVariable, 8*time.Second)
	if err != nil {
		return err
	}
	site := web.NewSite(l, web.Options{
		Instruments: []wire.InstrumentEntry{web.Camera(instrument, 10*time.Second)}, Flags: []string{fmt.Sprintf("--archive-size=%d", memory)},
	})
	nginx, err := web.StartNginx(l, web.ServerCores)
	if err != nil {
		return err
	}
	paths, keys, err := fill(ctx, site)
	if err != nil {
		return err
	}
	const name = "hot.jpg"
	if err := nginx.Put(ctx, name, web.Noise(size, 0)); err != nil {
		return err
	}
	base := "http://" + site.Server.Address()
	other, server := web.ClientCores, web.ServerCores
	b := &bench{lab: l, site: site, report: report.New("web-get", rounds), during: during, asks: []ask{
		{hot, ours, base, paths[:1], site.Server.PID(), other, other}, {hot, peer, nginx.URL(""), []string{"/" + name}, nginx.PID(), other, other},
		{alone, ours, base, paths[1:], site.Server.PID(), other, other}, {alone, s3server, site.MinIO.URL(), keys[1:], site.MinIO.PID(), other, other},
		{cold, ours, base, paths[1:], site.Server.PID(), server, other}, {cold, s3server, site.MinIO.URL(), keys[1:], site.MinIO.PID(), server, other},
	}}
	if err := b.measure(ctx); err != nil {
		return err
	}
	if err := b.coldness(site); err != nil {
		return err
	}
	return b.report.Finish()
}

// fill stores the objects, and returns where they are served: by feed-server, and by
// the S3 server to everybody.
func fill(ctx context.Context, site *web.Site) (paths, keys []string, err error) {
	paths, keys = make([]string, coldObjects+1), make([]string, coldObjects+1)
	group, inGroup := errgroup.WithContext(ctx)
	group.SetLimit(4)
	now := time.Now().UTC()
	for i := range paths {
		group.Go(func() error {
			o := web.Object{Instrument: instrument, Name: fmt.Sprintf("%04d.jpg", i), MediaType: "image/jpeg", Body: web.Noise(size, i), At: now.Add(time.Duration(i-coldObjects) * time.Second)}
			r, err := site.Put(inGroup, o)
			paths[i], keys[i] = o.URL(), "/"+web.Bucket+"/"+r.Key
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, nil, err
	}
	for _, path := range paths {
		if err := site.Await(ctx, path); err != nil {
			return nil, nil, err
		}
	}
	client, err := minio.New(site.MinIO.URL()[len("http://"):], &minio.Options{Creds: credentials.NewStaticV4(site.MinIO.AccessKeyID, site.MinIO.SecretAccessKey, "")})
	if err != nil {
		return nil, nil, err
	}
	return paths, keys, client.SetBucketPolicy(ctx, web.Bucket,
		`{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"AWS":["*"]},"Action":["s3:GetObject"],"Resource":["arn:aws:s3:::`+web.Bucket+`/*"]}]}`)
}

// ask is a case of a candidate.
type ask struct {
	name, candidate, base string
	paths                 []string
	pid                   int
	// cores of wrk, and of the S3 server.
	cores, store []int
}

type bench struct {
	lab    *lab.Lab
	site   *web.Site
	report *report.Report
	during time.Duration
	asks   []ask
}

func (b *bench) measure(ctx context.Context) error {
	for round := range b.report.Each() {
		for i := range b.asks {
			a := b.asks[(i+round)%len(b.asks)]
			b.site.Pin(b.site.MinIO.PID(), a.store)
			load := web.Load{Method: http.MethodGet, Base: a.base, Paths: a.paths, Want: http.StatusOK, Connections: connections, During: b.during, PID: a.pid, Cores: a.cores}
			o, err := load.Run(ctx, b.lab)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", a.name, a.candidate, err)
			}
			b.report.Add(a.name, a.candidate, "/s", o.PerSecond())
			b.report.Add(a.name, a.candidate+", CPU", "µs", float64(o.CPU)/float64(time.Microsecond))
		}
	}
	r := b.report
	r.Note("Objects of %d B, %d connections of wrk; feed-server and nginx on one core, wrk on the other. Cold: %d objects in turn.", size, connections, coldObjects)
	r.Note("With a core of its own feed-server works beside wrk and the S3 server, which share the other one also when wrk asks the S3 server;")
	r.Note("with wrk on its core the S3 server has the other.")
	r.Compare("hot/nginx", []report.Pair{{Case: hot, Candidate: ours, OfCase: hot, OfCandidate: peer}}, ">=", 0.8)
	r.Compare("cold,own-core/S3-server", []report.Pair{{Case: alone, Candidate: ours, OfCase: alone, OfCandidate: s3server}}, ">=", 0.8)
	r.Compare("cold,shared-core/S3-server", []report.Pair{{Case: cold, Candidate: ours, OfCase: cold, OfCandidate: s3server}}, ">=", 0.8)
	return nil
}

// coldness says how much of what was asked for came from the S3 server.
func (b *bench) coldness(site *web.Site) error {
	counts := map[string]float64{}
	for _, result := range []string{"Hit", "Miss", "NoSpace"} {
		n, err := site.Metric(`substorm_archive_hot_total{result="` + result + `"}`)
		if err != nil {
			return err
		}
		counts[result] = n
	}
	fetched := counts["Miss"] + counts["NoSpace"]
	asked := 0.
	for _, name := range []string{alone, cold} {
		for _, v := range b.report.Values(name, ours) {
			asked += v * b.during.Seconds()
		}
	}
	if fetched < asked/2 {
		return fmt.Errorf("of about %.0f objects that were to be cold feed-server fetched %.0f", asked, fetched)
	}
	b.report.Note("feed-server sent %.0f from memory, and fetched %.0f.", counts["Hit"], fetched)
	return nil
}
