// SPDX-License-Identifier: Apache-2.0

//go:build linux

package up_test

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/substorm/substorm/internal/testenv"
)

// load puts one object after another, and notes those that have a receipt.
type load struct {
	t    *testing.T
	port int
	stop chan struct{}
	all  sync.WaitGroup

	mu        sync.Mutex
	receipted []string
}

func startLoad(t *testing.T, port int) *load {
	l := &load{t: t, port: port, stop: make(chan struct{})}
	for worker := range 2 {
		l.all.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-l.stop:
					return
				default:
					l.put(fmt.Sprintf("%d-%05d.jpg", worker, n))
				}
			}
		})
	}
	return l
}

// put sends an object whose content follows from the name.
func (l *load) put(name string) {
	q, err := http.NewRequest(http.MethodPut, fmt.Sprintf("http://127.0.0.1:%d/in/camera/%s", l.port, name), bytes.NewReader(contentOf(name)))
	if err != nil {
		l.t.Error(err)
		return
	}
	answer, err := http.DefaultClient.Do(q)
	if err != nil {
		l.t.Error(err)
		return
	}
	defer answer.Body.Close()
	if answer.StatusCode == http.StatusCreated {
		l.mu.Lock()
		l.receipted = append(l.receipted, name)
		l.mu.Unlock()
	}
}

func contentOf(name string) []byte { return bytes.Repeat([]byte(name+"\n"), 100) }

// names of the objects that have a receipt by now.
func (l *load) names() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.receipted)
}

// await returns once so many objects more have a receipt.
func (l *load) await(more int) {
	l.t.Helper()
	all := len(l.names()) + more
	eventually(l.t, "objects are receipted", func() error {
		if n := len(l.names()); n < all {
			return fmt.Errorf("%d of %d are", n, all)
		}
		return nil
	})
}

func (l *load) finish() {
	close(l.stop)
	l.all.Wait()
}

// TestCopyOfARunningSite: the folders of a Site are copied in three orders while it receives. A Site that starts with such a copy
// serves each object that had its receipt before the copy was begun.
func TestCopyOfARunningSite(t *testing.T) {
	t.Parallel()
	m := newMirrored(t, "thule")
	m.ready("site/thule", "instrument/camera")
	l := startLoad(t, m.port)
	orders := [][]string{{"objects", "nats", "volumes", "api"}, {"nats", "api", "volumes", "objects"}, {"api", "volumes", "objects", "nats"}}
	folders, receipted := make([]string, len(orders)), make([][]string, len(orders))
	for i, order := range orders {
		l.await(50)
		receipted[i], folders[i] = l.names(), filepath.Join(t.TempDir(), "copy")
		for _, part := range order {
			copyPart(t, m.DataDir, folders[i], part)
			l.await(20)
		}
	}
	l.finish()
	m.Stop()
	for i, order := range orders {
		t.Run(strings.Join(order, " "), func(t *testing.T) {
			c := &mirrored{t: t, code: m.code, port: m.port, dir: m.dir}
			c.Standalone = testenv.StandaloneIn(t, folders[i], m.dir)
			c.Start()
			defer c.Stop()
			c.serves(receipted[i])
		})
	}
}

// copyPart copies one folder of a Site that runs. Files that go meanwhile are not in the copy.
func copyPart(t *testing.T, from, to, part string) {
	t.Helper()
	if err := os.MkdirAll(to, 0o700); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("cp", "-a", filepath.Join(from, part), to).CombinedOutput(); err != nil {
		t.Logf("%s: %v: %s", part, err, out)
	}
}

// serves waits until objects of the camera are there with their bytes.
func (m *mirrored) serves(names []string) {
	m.t.Helper()
	left := names
	eventually(m.t, fmt.Sprintf("%d objects are served", len(names)), func() error {
		for len(left) > 0 {
			status, body, _ := m.get("/archive/camera/n/" + left[0])
			if status != http.StatusOK || !bytes.Equal(body, contentOf(left[0])) {
				return fmt.Errorf("%d of %d are not, as %s: %d %s", len(left), len(names), left[0], status, body)
			}
			left = left[1:]
		}
		return nil
	})
}
