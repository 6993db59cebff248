// SPDX-License-Identifier: Apache-2.0

package ledger_test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/ingest-gateway/announce"
	"github.com/substorm/substorm/ingest-gateway/ledger"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// intent is what an incarnation reports to the test that it is about to count.
type intent struct {
	Read, Dropped, Begun, Failed uint64
}

// live receives invented data until its standard input ends, and then stops cleanly.
func live(url, dir, incarnation string) error {
	g, err := openGateway(context.Background(), url, dir, incarnation)
	if err != nil {
		return err
	}
	stop := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(stop)
	}()
	var told struct {
		sync.Mutex
		intent
		out *json.Encoder
	}
	told.out = json.NewEncoder(os.Stdout)
	tell := func(change func(*intent)) {
		told.Lock()
		defer told.Unlock()
		change(&told.intent)
		_ = told.out.Encode(told.intent)
	}
	var senders sync.WaitGroup
	for i := range 4 {
		senders.Add(2)
		random := rand.New(rand.NewPCG(uint64(os.Getpid()), uint64(i)))
		go func() { defer senders.Done(); g.sendDatagrams(stop, random, tell) }()
		go func() { defer senders.Done(); g.sendObjects(stop, i, tell) }()
	}
	senders.Wait()
	return g.close()
}

type gatewayIncarnation struct {
	incarnation   string
	ledger        *ledger.Ledger
	announcer     *announce.Announcer
	notices, obs  *stream.Committer
	stopLedger    context.CancelFunc
	ledgerStopped chan error
	datagrams     sync.WaitGroup
}

func openGateway(ctx context.Context, url, dir, incarnation string) (*gatewayIncarnation, error) {
	nc, err := stream.Connect(ctx, stream.Config{Servers: []string{url}, Name: incarnation})
	if err != nil {
		return nil, err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	g := &gatewayIncarnation{incarnation: incarnation, ledgerStopped: make(chan error, 1)}
	g.ledger, err = ledger.Open(ledger.Config{Dir: dir, Site: site, Gateway: gateway, Incarnation: incarnation}.Hasten())
	if err != nil {
		return nil, err
	}
	if g.notices, err = stream.NewCommitter(nc, stream.CommitterConfig{Stream: wire.NoticeStream(site)}); err != nil {
		return nil, err
	}
	if g.obs, err = stream.NewCommitter(nc, stream.CommitterConfig{Stream: wire.ObservationStream(site)}); err != nil {
		return nil, err
	}
	g.announcer = announce.New(announce.Config{
		Site: site, Gateway: gateway, Incarnation: incarnation, Notices: g.notices, Observations: g.obs,
	})
	ctx, g.stopLedger = context.WithCancel(ctx)
	go func() { g.ledgerStopped <- g.ledger.Run(ctx, js) }()
	return g, nil
}

func (g *gatewayIncarnation) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	err := errors.Join(g.notices.Close(ctx), g.obs.Close(ctx))
	g.datagrams.Wait()
	g.stopLedger()
	return errors.Join(err, <-g.ledgerStopped, g.ledger.Close(ctx))
}

func (g *gatewayIncarnation) sendDatagrams(stop chan struct{}, random *rand.Rand, tell func(func(*intent))) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		n, now := 1+random.IntN(20), time.Now()
		tell(func(i *intent) { i.Read += uint64(n) })
		g.ledger.Datagrams(sounder, "telemetry", now).Read(n, now)
		if random.IntN(10) == 0 {
			tell(func(i *intent) { i.Dropped += uint64(n) })
			g.ledger.DatagramsDropped(sounder, now, wire.CauseBacklog, n)
			continue
		}
		g.datagrams.Add(1)
		message := announce.Telemetry{Instrument: sounder, Channel: "raw", At: now, Payload: []byte("…"), Datagrams: n, DatagramBytes: 100 * n}
		err := g.announcer.Telemetry(context.Background(), message, func(err error) {
			if err == nil {
				g.ledger.DatagramsReceived(sounder, now, n, 100*n)
			}
			g.datagrams.Done()
		})
		if err != nil {
			g.datagrams.Done()
		}
	}
}

func (g *gatewayIncarnation) sendObjects(stop chan struct{}, sender int, tell func(func(*intent))) {
	for i := 0; ; i++ {
		select {
		case <-stop:
			return
		default:
		}
		name := fmt.Sprintf("%s-%d-%d", g.incarnation, sender, i)
		n := noticeOf(name, g.incarnation, time.Now())
		tell(func(i *intent) { i.Begun++ })
		g.ledger.ObjectBegun(camera, n.ReceivedAt)
		g.ledger.ObjectBytesRead(camera, n.ReceivedAt, int(n.Size))
		if i%7 == 0 {
			tell(func(i *intent) { i.Failed++ })
			g.ledger.Unfinished(camera, n.ReceivedAt, wire.CauseReset, n.Size)
			continue
		}
		err := g.announcer.Notice(context.Background(), n, func(err error) {
			if err == nil {
				g.ledger.Received(camera, n.ReceivedAt, n.Size, n.Digest)
			} else {
				g.ledger.Unfinished(camera, n.ReceivedAt, stream.CauseOf(err), n.Size)
			}
		})
		if err == nil && i%5 != 0 {
			g.ledger.Acknowledged(camera, n.ReceivedAt)
		}
	}
}

func noticeOf(name, incarnation string, at time.Time) wire.Notice {
	digest := wire.Digest(sha256.Sum256([]byte(name)))
	key := wire.RawKey(site, camera, at, digest)
	return wire.Notice{Site: site, Instrument: camera, Record: wire.Record{
		ID: key, Key: key, Size: 1000 + int64(len(name)), Digest: digest, State: wire.StateCurrent,
		ReceivedAt: at, TimeSource: wire.TimeSourceReceived, Gateway: gateway, Incarnation: incarnation,
	}}
}

// runIncarnation starts the program again as a gateway, kills it (or lets it stop) after a while, and returns what it said last.
func runIncarnation(t *testing.T, url, dir, incarnation string, length time.Duration, kill bool) intent {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), envURL+"="+url, envDir+"="+dir, envIncarnation+"="+incarnation)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(length, func() {
		if kill {
			_ = cmd.Process.Kill()
		} else {
			_ = in.Close()
		}
	})
	var last intent
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var i intent
		if err := json.Unmarshal(lines.Bytes(), &i); err == nil { // the last line may be cut
			last = i
		}
	}
	if err := cmd.Wait(); err != nil && !kill {
		t.Fatalf("incarnation %s: %v", incarnation, err)
	}
	return last
}
