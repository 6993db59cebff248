// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"bytes"
	"flag"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/substorm/substorm/internal/objectstore"
)

// TestMain runs eight tests at once on however few processors: they wait for
// leases and intervals most of the time.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err.Error())
	}
	os.Exit(m.Run())
}

func put(t *testing.T, l *lab, key, body string) {
	t.Helper()
	if err := l.store.Put(t.Context(), key, strings.NewReader(body), int64(len(body)), objectstore.PutOptions{}); err != nil {
		t.Fatal(err)
	}
}

// lockedBuffer is a log that is read while it is written.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func logTo(b *lockedBuffer) *slog.Logger { return slog.New(slog.NewTextHandler(b, nil)) }
