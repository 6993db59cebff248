// SPDX-License-Identifier: Apache-2.0

package receiver

import (
	"context"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/bench/internal/lab"
	"github.com/substorm/substorm/bench/internal/process"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// Backends are what a Site needs: a store and JetStream, both real.
type Backends struct {
	Bucket Bucket
	NATS   string
}

// StartBackends starts MinIO and NATS (synced) and makes the Site's streams and bucket.
func StartBackends(l testing.TB) Backends {
	nats, minio := testenv.NATS(l, testenv.NATSOptions{}), testenv.MinIO(l, testenv.MinIOOptions{})
	testenv.CreateSite(l, nats.JetStream(l), SiteCode)
	minio.Bucket(l, BucketName)
	return Backends{Bucket: BucketOf(minio.Config(BucketName)), NATS: nats.URL()}
}

// noticeBytes is space for some millions of notices.
const noticeBytes = 4 << 30

// ManyNotices makes the Site's stream of notices as large as a flood of small
// objects needs: what is in manifests stays in it for an hour.
func (b Backends) ManyNotices(ctx context.Context) error {
	nc, err := nats.Connect(b.NATS)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	return lab.Widen(ctx, js, wire.NoticeStream(SiteCode), noticeBytes)
}

// StartSite starts a gateway with a volume of its own, and beside it an archivist, which
// ends with it. Kind, Port, Dir and the backends of o are filled in.
func StartSite(l testing.TB, b Backends, o Options) *Process {
	o.Kind, o.Port, o.Dir, o.Objects, o.NATS = Site, testenv.FreePort(l), l.TempDir(), b.Bucket, b.NATS
	gateway := Start(l, o)
	gateway.archivist = Start(l, Options{
		Kind: Archivist, Port: testenv.FreePort(l), Dir: l.TempDir(), PartInterval: o.PartInterval, Objects: o.Objects, NATS: o.NATS, CPUs: o.CPUs,
	})
	return gateway
}

// Metric returns a figure of a gateway of kind Site, by its name without labels.
func (p *Process) Metric(name string) (float64, error) {
	value, found, err := process.Metric("http://"+loopback(p.Port()+1)+"/metrics", name)
	if err == nil && !found {
		err = fmt.Errorf("the gateway has no metric %s", name)
	}
	return value, err
}
