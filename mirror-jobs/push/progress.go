// SPDX-License-Identifier: Apache-2.0

package push

import (
	"sync/atomic"

	"github.com/substorm/substorm/internal/wire"
)

// Progress is how far a run is. The zero value is one that begins; its methods may be called
// from several goroutines.
type Progress struct {
	objects, bytes, owedObjects, owedBytes, removed, failed, differing atomic.Int64
}

// Report is what a report says of it.
func (p *Progress) Report() wire.MirrorProgress {
	return wire.MirrorProgress{
		Objects: p.objects.Load(), Bytes: p.bytes.Load(), TotalObjects: p.owedObjects.Load(), TotalBytes: p.owedBytes.Load(),
		Removed: p.removed.Load(), Failed: p.failed.Load(),
	}
}

// Differing are the objects that verification found to be others at the partner.
func (p *Progress) Differing() int64 { return p.differing.Load() }

func (p *Progress) owe(bytes int64) {
	p.owedObjects.Add(1)
	p.owedBytes.Add(bytes)
}

func (p *Progress) got(bytes int64) {
	p.objects.Add(1)
	p.bytes.Add(bytes)
}

func (p *Progress) fail()        { p.failed.Add(1) }
func (p *Progress) differ()      { p.differing.Add(1) }
func (p *Progress) remove(n int) { p.removed.Add(int64(n)) }
