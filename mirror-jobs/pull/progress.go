// SPDX-License-Identifier: Apache-2.0

package pull

import "sync/atomic"

// Progress is how far a run is. The zero value is the beginning of a run; its methods may be called from several goroutines.
type Progress struct {
	objects, bytes, owedObjects, owedBytes, removedObjects, failedObjects, received, unlisted, kept atomic.Int64
}

// Figures are those of a Progress at one moment.
type Figures struct {
	// Objects and Bytes that were fetched, of Owed ones that are known by now.
	Objects, Bytes         int64
	OwedObjects, OwedBytes int64
	// Removed, and Failed that could not be had.
	Removed, Failed int64
	// Unlisted are here, and the other side does not list them any more, or lists other bytes in their place.
	Unlisted int64
	// Kept are retractions and purges that stand here, and that the other side does not list any more.
	Kept int64
	// Received are the bytes that came by the network, lists included.
	Received int64
}

// Figures returns how far the run is.
func (p *Progress) Figures() Figures {
	return Figures{
		Objects: p.objects.Load(), Bytes: p.bytes.Load(), OwedObjects: p.owedObjects.Load(), OwedBytes: p.owedBytes.Load(),
		Removed: p.removedObjects.Load(), Failed: p.failedObjects.Load(), Received: p.received.Load(), Unlisted: p.unlisted.Load(), Kept: p.kept.Load(),
	}
}

// Receive counts bytes that came by the network.
func (p *Progress) Receive(bytes int) { p.received.Add(int64(bytes)) }

func (p *Progress) owe(objects, bytes int64) {
	p.owedObjects.Add(objects)
	p.owedBytes.Add(bytes)
}

func (p *Progress) got(objects, bytes int64) {
	p.objects.Add(objects)
	p.bytes.Add(bytes)
}

// had: bytes came in an earlier run.
func (p *Progress) had(bytes int64)     { p.owedBytes.Add(-bytes) }
func (p *Progress) removed(objects int) { p.removedObjects.Add(int64(objects)) }
func (p *Progress) fail(objects int)    { p.failedObjects.Add(int64(objects)) }
