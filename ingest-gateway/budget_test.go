// SPDX-License-Identifier: Apache-2.0

package ingestgateway_test

import (
	"bufio"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// With a budget of 64 MiB: 300 half-sent objects of 1 MB that then continue, and one large object
// beside them. All arrive.
//
// The large object is 128 MiB; SUBSTORM_TEST_LARGE_OBJECT=2147483648 makes it
// the 2 GiB that takes minutes on a small machine.
func TestBudget(t *testing.T) {
	const budget, objects, size = 64 << 20, 300, 1_000_000
	large := int64(128 << 20)
	if s := os.Getenv("SUBSTORM_TEST_LARGE_OBJECT"); s != "" {
		var err error
		if large, err = strconv.ParseInt(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	l := newLab(t)
	camera, radar := tcpInstrument("camera", testenv.FreePort(t)), tcpInstrument("radar", testenv.FreePort(t))
	radar.MaxObjectSize = 4 << 30
	g := l.start(t, gatewayOptions{flags: []string{"--memory-budget", strconv.Itoa(budget)}})
	l.awaitRevision(t, g.name, l.declare(t, camera, radar))

	content := func(i int) []byte { return random(uint64(i), size) }
	want := map[wire.Digest]int64{}
	var mu sync.Mutex
	expect := func(r wire.Receipt, digest wire.Digest, n int64) {
		mu.Lock()
		defer mu.Unlock()
		want[digest] = n
		if r.Digest != digest || r.Bytes != n {
			t.Errorf("receipt %+v, want %s, %d bytes", r, digest, n)
		}
	}

	// All halves arrive while none of the objects is whole.
	var conns [objects]*net.TCPConn
	for i := range conns {
		conn := dial(t, int(camera.Listeners[0].Port))
		defer conn.Close()
		conns[i] = conn
		if _, err := conn.Write(content(i)[:size/2]); err != nil {
			t.Fatal(err)
		}
	}
	await(t, "all halves are in memory and scratch", func() (bool, string) {
		held := g.number("substorm_gateway_memory_used_bytes") + g.number("substorm_gateway_scratch_used_bytes")
		return held >= objects*size/2 && g.number(fmt.Sprintf("substorm_gateway_connections{instrument=%q}", camera.Instrument)) == objects, fmt.Sprint(held)
	})
	if used := g.number("substorm_gateway_memory_used_bytes"); used > budget {
		t.Errorf("%v bytes of memory in use", used)
	}

	var wg sync.WaitGroup
	wg.Go(func() {
		digest, r := sendLarge(t, int(radar.Listeners[0].Port), large)
		expect(r, digest, large)
	})
	next := make(chan int)
	for range 16 {
		wg.Go(func() {
			for i := range next {
				object := content(i)
				_, err := conns[i].Write(object[size/2:])
				if err == nil {
					err = conns[i].CloseWrite()
				}
				if err != nil {
					t.Errorf("object %d: %v", i, err)
					continue
				}
				expect(hear(conns[i]).receipt(t), sha256.Sum256(object), size)
			}
		})
	}
	for i := range objects {
		next <- i
	}
	close(next)
	wg.Wait()

	got := map[wire.Digest]int64{}
	for _, n := range l.notices(t) {
		got[n.Digest] = n.Size
	}
	if len(got) != objects+1 || len(want) != objects+1 {
		t.Errorf("%d objects are announced, %d were receipted, %d sent", len(got), len(want), objects+1)
	}
	for digest, n := range want {
		if got[digest] != n {
			t.Errorf("object %s of %d bytes is announced with %d", digest, n, got[digest])
		}
	}
	for _, n := range l.notices(t) {
		if n.Instrument == "radar" {
			if digest, _ := l.digestOf(t, n.Record); digest != n.Digest {
				t.Errorf("the large object in the bucket is %s", digest)
			}
		}
	}
	if keys := l.keys(t, wire.StagingPrefix(l.site)); len(keys) != 0 {
		t.Errorf("staging holds %v", keys)
	}
	t.Logf("%v objects went to scratch; the process took %s at most", g.metric("substorm_gateway_scratch_spills_total"), g.peakMemory())
}

// sendLarge streams an object of n bytes and returns its digest and receipt.
func sendLarge(t *testing.T, port int, n int64) (wire.Digest, wire.Receipt) {
	conn := dial(t, port)
	defer conn.Close()
	h := sha256.New()
	block := random(99, 1<<20)
	out := io.MultiWriter(conn, h)
	for left := n; left > 0; {
		block[0]++
		m, err := out.Write(block[:min(left, int64(len(block)))])
		if err != nil {
			t.Errorf("large object: %v", err)
			return wire.Digest{}, wire.Receipt{}
		}
		left -= int64(m)
	}
	if err := conn.CloseWrite(); err != nil {
		t.Error(err)
	}
	line, err := bufio.NewReader(conn).ReadString('\n') // however long the store takes
	if err != nil {
		t.Errorf("large object: %v", err)
		return wire.Digest{}, wire.Receipt{}
	}
	r, err := wire.ParseReceipt(line)
	if err != nil {
		t.Error(err)
	}
	return wire.Digest(h.Sum(nil)), r
}

// peakMemory is the most that the process had resident.
func (g *gateway) peakMemory() string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", g.cmd.Process.Pid))
	for line := range strings.Lines(string(b)) {
		if value, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
