// SPDX-License-Identifier: Apache-2.0

package replica

import (
	"bytes"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/substorm/substorm/ingest-gateway/spool"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// BenchmarkCopies has a peer keep copies, 32 at a time, beside a spool alone on
// the same disk.
func BenchmarkCopies(b *testing.B) {
	for _, size := range []int{32 << 10, 1 << 20} {
		data := random(1, size)
		run := func(name string, keep func(wire.Notice) error) {
			b.Run(fmt.Sprintf("%s/%d", name, size), func(b *testing.B) {
				b.SetBytes(int64(size))
				work := make(chan wire.Notice)
				var failed atomic.Pointer[error]
				var workers sync.WaitGroup
				for range 32 {
					workers.Go(func() {
						for n := range work {
							if err := keep(n); err != nil {
								failed.CompareAndSwap(nil, &err)
							}
						}
					})
				}
				base := notice(data)
				for i := range b.N {
					n := base
					n.ID = fmt.Sprintf("%s-%s-%d-%d", base.ID, name, b.N, i)
					work <- n
				}
				close(work)
				workers.Wait()
				if err := failed.Load(); err != nil {
					b.Fatal(*err)
				}
			})
		}
		local, err := spool.Open(spool.Config{Dir: filepath.Join(b.TempDir(), "spool"), Size: 8 << 30})
		if err != nil {
			b.Fatal(err)
		}
		run("spool", func(n wire.Notice) error { return local.Object(n, bytes.NewReader(data), n.Size) })
		_ = local.Close()
		certificates := testenv.NewCA(b).Dir(b, "north", wire.GatewayName("north"))
		k := startKeeper(b, b.TempDir(), certificates, 8<<30)
		p := peersOf(b, certificates, map[string]string{"north-1": k.address()})
		run("copy", func(n wire.Notice) error {
			_, err := p.Copy(b.Context(), n, bytes.NewReader(data))
			return err
		})
		k.stop()
	}
}
