// SPDX-License-Identifier: Apache-2.0

package natsserver

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// tryLayout errs where a server stages an atomic batch elsewhere than in the folder batches of its stream, or keeps there what is stored:
// another version may. It has a server do so in dir, which it makes and removes.
func tryLayout(ctx context.Context, dir, batches string) (err error) {
	defer func() { _ = os.RemoveAll(dir) }()
	ctx, cancel := context.WithTimeout(ctx, layoutTimeout)
	defer cancel()
	n, err := server.NewServer(&server.Options{
		ServerName: "layout", DontListen: true, NoSigs: true, NoLog: true, JetStream: true, StoreDir: dir, JetStreamMaxMemory: 1 << 20, JetStreamMaxStore: 1 << 20,
	})
	if err != nil {
		return err
	}
	n.Start()
	defer func() { n.Shutdown(); n.WaitForShutdown() }()
	if err := await(ctx, n); err != nil {
		return err
	}
	nc, err := nats.Connect("", nats.InProcessServer(n))
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: layoutStream, Subjects: []string{layoutStream}, AllowAtomicPublish: true}); err != nil {
		return err
	}
	if err := publishInBatch(ctx, nc, "1", false); err != nil {
		return err
	}
	if stagedIn(dir, batches) == 0 {
		return fmt.Errorf("NATS server %s stages no batch in the folder %s of its stream", server.VERSION, batches)
	}
	if err := publishInBatch(ctx, nc, "2", true); err != nil {
		return err
	}
	if _, err := js.Publish(ctx, layoutStream, nil); err != nil { // the server acknowledges a batch before it is done with it
		return err
	}
	if stagedIn(dir, batches) > 0 {
		return fmt.Errorf("NATS server %s leaves a batch that is stored in the folder %s of its stream", server.VERSION, batches)
	}
	return nil
}

const (
	layoutStream = "LAYOUT"
	// layoutTimeout is for a machine that does much else.
	layoutTimeout = 30 * time.Second
)

// stagedIn is how many batches are staged.
func stagedIn(dir, batches string) (n int) {
	streams, _ := streamDirs(dir, layoutStream) // errs for a bad pattern only
	for _, stream := range streams {
		staged, _ := filepath.Glob(filepath.Join(stream, batches, "*"))
		n += len(staged)
	}
	return n
}

// publishInBatch publishes a message of a batch, and the batch with the last one.
func publishInBatch(ctx context.Context, nc *nats.Conn, sequence string, last bool) error {
	m := nats.NewMsg(layoutStream)
	m.Header.Set(server.JSBatchId, layoutStream)
	m.Header.Set(server.JSBatchSeq, sequence)
	if last {
		m.Header.Set(server.JSBatchCommit, "1")
	}
	answer, err := nc.RequestMsgWithContext(ctx, m)
	if err != nil || len(answer.Data) == 0 {
		return err
	}
	var ack server.JSPubAckResponse
	if err := json.Unmarshal(answer.Data, &ack); err != nil {
		return err
	}
	return ack.ToError()
}
