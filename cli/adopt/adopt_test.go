// SPDX-License-Identifier: Apache-2.0

//go:build linux

package adopt

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/substorm/substorm/cli/output"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
)

// mortal is the real store for so many calls, and then gone: as a process that
// is killed sees it.
type mortal struct {
	objectstore.Store
	left int
}

var errKilled = errors.New("killed")

func (m *mortal) die() error {
	if m.left--; m.left < 0 {
		return errKilled
	}
	return nil
}

func (m *mortal) Put(ctx context.Context, key string, body io.ReadSeeker, size int64, o objectstore.PutOptions) error {
	if err := m.die(); err != nil {
		return err
	}
	return m.Store.Put(ctx, key, body, size, o)
}

func (m *mortal) Copy(ctx context.Context, from, to string, o objectstore.PutOptions) error {
	if err := m.die(); err != nil {
		return err
	}
	return m.Store.Copy(ctx, from, to, o)
}

func (m *mortal) Delete(ctx context.Context, key string) error {
	if err := m.die(); err != nil {
		return err
	}
	return m.Store.Delete(ctx, key)
}

// send sends an object as an unknown sender and says whether it was receipted.
func send(port int, object []byte) bool {
	conn, err := net.Dial("tcp", testenv.Loopback(port))
	if err != nil {
		return false
	}
	defer conn.Close()
	_, _ = conn.Write(object)
	_ = conn.(*net.TCPConn).CloseWrite()
	answer, _ := io.ReadAll(conn)
	return string(answer) == wire.Receipt{Digest: sha256.Sum256(object), Bytes: int64(len(object))}.Line()
}

// TestAdopt: what unknown senders sent to a real gateway becomes an instrument's, once,
// wherever the command is cut short.
func TestAdopt(t *testing.T) {
	nats, minio := testenv.NATS(t, testenv.NATSOptions{Domain: "hub"}), testenv.SharedMinIO(t, testenv.MinIOOptions{})
	bucket := testenv.BucketName()
	js := nats.JetStream(t)
	testenv.CreateSite(t, js, "hub")
	store := minio.Bucket(t, bucket)
	port, other := testenv.FreePort(t), testenv.FreePort(t)
	camera := testenv.InstrumentTCP("camera", testenv.FreePort(t))
	camera.MediaType = "image/x-test"
	g := testenv.StartGateway(t, testenv.GatewayOptions{Site: "hub", NATS: nats, MinIO: minio, Bucket: bucket, Instruments: []wire.InstrumentEntry{camera},
		Flags: []string{"--unknown-senders", "Quarantine", "--quarantine-ports", fmt.Sprintf("%d,%d", port, other)}})
	testenv.StartArchivist(t, testenv.ArchivistOptions{Site: "hub", NATS: nats, MinIO: minio, Bucket: bucket})
	begun := time.Now().Add(-time.Minute)
	var objects [][]byte
	for i := range 4 {
		o := bytes.Repeat([]byte{byte('a' + i)}, 1000+i)
		objects = append(objects, o)
		testenv.Await(t, "a receipt", func() bool { return send(port, o) })
	}
	testenv.Await(t, "a receipt", func() bool { return send(other, []byte("another's")) })
	udp, err := net.Dial("udp", testenv.Loopback(port))
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	if _, err := udp.Write([]byte("a datagram")); err != nil {
		t.Fatal(err)
	}
	testenv.Await(t, "the datagram is read", func() bool { return strings.Contains(g.Log(), "datagram dropped") })
	g.Stop()

	run := func(a adoption) (string, error) {
		var out bytes.Buffer
		a.out, a.site, a.js, a.now = &out, "hub", js, time.Now
		if a.store == nil {
			a.store = store
		}
		if a.instrument != "" {
			return out.String(), func() error { err := a.adopt(t.Context()); return err }()
		}
		all, err := a.find(t.Context())
		if err == nil {
			table(&out, all)
			err = manifests(output.YAML.Encoder(&out), all)
		}
		return out.String(), err
	}

	listed, err := run(adoption{})
	if err != nil {
		t.Fatal(err)
	}
	t.Log("\n" + listed)
	lines := strings.Split(listed, "\n")
	if len(lines) < 4 || !strings.Contains(listed, "127.0.0.1  TCP") || !strings.Contains(listed, "UDP") {
		t.Errorf("listed:\n%s", listed)
	}
	_, declared, _ := strings.Cut(listed, "# ")
	for text := range strings.SplitSeq("# "+declared, "---\n") {
		var inst v1alpha1.Instrument
		if err := yaml.UnmarshalStrict([]byte(text), &inst); err != nil || len(inst.Spec.Listeners) != 1 || inst.Spec.Listeners[0].Sources[0] != "127.0.0.1/32" {
			t.Errorf("%v in\n%s", err, text)
		}
	}

	mine := adoption{source: netip.MustParseAddr("127.0.0.1"), port: uint16(port), instrument: "camera"}
	if _, err := run(adoption{source: mine.source, port: mine.port, instrument: "nobody"}); err == nil || !strings.Contains(err.Error(), "apply it first") {
		t.Errorf("an instrument that nobody declared: %v", err)
	}
	// Cut short after each call that changes something, and then once to the end.
	cuts := 0
	for calls := 0; ; calls++ {
		a := mine
		a.store = &mortal{store, calls}
		_, err := run(a)
		if err == nil {
			break
		}
		if !errors.Is(err, errKilled) {
			t.Fatal(err)
		}
		cuts++
	}
	if cuts < 5 {
		t.Errorf("it was cut short %d times", cuts)
	}

	for _, o := range objects {
		digest := wire.Digest(sha256.Sum256(o))
		found := 0
		for info, err := range store.List(t.Context(), wire.InstrumentPrefix("hub", "camera"), "") {
			if err != nil {
				t.Fatal(err)
			}
			head, err := store.Head(t.Context(), info.Key)
			if err != nil {
				t.Fatal(err)
			}
			n, err := wire.NoticeFromMetadata(info.Key, head.Metadata)
			if err != nil {
				t.Fatal(err)
			}
			if n.Digest == digest {
				found++
				if n.MediaType != "image/x-test" || n.Port != uint16(port) || n.ReceivedAt.Before(begun) || !strings.HasPrefix(n.Source, "127.0.0.1:") {
					t.Errorf("%+v", n)
				}
			}
		}
		if found != 1 {
			t.Errorf("an object is in the archive %d times", found)
		}
	}
	left := 0
	for info, err := range store.List(t.Context(), wire.QuarantinePrefix("hub"), "") {
		if err != nil {
			t.Fatal(err)
		}
		left++
		if head, err := store.Head(t.Context(), info.Key); err != nil || !strings.Contains(head.Metadata[wire.MetadataQuarantined], fmt.Sprint(other)) {
			t.Errorf("left: %s, %v", info.Key, err)
		}
	}
	if left != 1 {
		t.Errorf("%d are left", left)
	}
	ledger, err := js.KeyValue(t.Context(), wire.LedgerBucket("hub"))
	if err != nil {
		t.Fatal(err)
	}
	var sum wire.Totals
	for _, day := range []wire.Day{wire.DayOf(begun), wire.DayOf(time.Now())} {
		e, err := ledger.Get(t.Context(), wire.LedgerKey("camera", day, wire.StepReceived, wire.AdoptWriter))
		if err != nil {
			continue
		}
		entry, err := wire.Decode[wire.LedgerEntry](e.Value())
		if err != nil {
			t.Fatal(err)
		}
		if sum = sum.Plus(entry.Sum()); wire.DayOf(begun) == wire.DayOf(time.Now()) {
			break
		}
	}
	if sum.Objects != 5 { // four objects, and a segment with the datagram
		t.Errorf("the ledger counts %d objects", sum.Objects)
	}
	notices, err := js.Stream(t.Context(), wire.NoticeStream("hub"))
	if err != nil {
		t.Fatal(err)
	}
	if info, err := notices.Info(t.Context()); err != nil || info.State.Msgs != 5 {
		t.Errorf("%d notices, %v", info.State.Msgs, err)
	}
}
