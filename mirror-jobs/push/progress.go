// SPDX-License-Identifier: Apache-2.0

package push

import (
	"sync/atomic"

	"github.com/substorm/substorm/internal/wire"
)

// Progress is how far a run is. The zero value is one that begins; its methods may be called
// from several goroutines.
type Progress struct {
	objects, bytes, owedObjects, owedBytes, compared, removed, failed, differing atomic.Int64
}

// Report is what a report says of it.
func (p *Progress) Report() wire.MirrorProgress {
	return wire.MirrorProgress{
		Objects: p.objects.Load(), Bytes: p.bytes.Load(), TotalObjects: p.owedObjects.Load(), TotalBytes: p.owedBytes.Load(),
		Compared: p.compared.Load(), Removed: p.removed.Load(), Failed: p.failed.Load(),
	}
}

// Differing are the objects that verification found to be others at the partner.
func (p *Progress) Differing() int64 { return p.differing.Load() }

func (p *Progress) owe(bytes int64) {
	p.owedObjects.Add(1)
	p.owedBytes.Add(bytes)
}

// ended counts an object that the partner has, or has not. A run that only verifies moves
// nothing, and what it finds missing is owed.
func (p *Progress) ended(bytes int64, has, verifyOnly bool) {
	switch {
	case !has:
		p.failed.Add(1)
		if verifyOnly {
			p.owe(bytes)
		}
	case verifyOnly:
		p.compared.Add(1)
	default:
		p.objects.Add(1)
		p.bytes.Add(bytes)
	}
}

func (p *Progress) differ()      { p.differing.Add(1) }
func (p *Progress) remove(n int) { p.removed.Add(int64(n)) }
