// SPDX-License-Identifier: Apache-2.0

package tcp

// maxIdleWorkers is how many goroutines wait for another connection: their stacks
// have grown to what serving one takes, some 16 KiB.
const maxIdleWorkers = 64

// workers are idle goroutines. Growing the stack of a new one costs as much as
// reading 32 KiB.
type workers chan chan<- func()

// run runs f in a goroutine.
func (w workers) run(f func()) {
	select {
	case idle := <-w:
		idle <- f
	default:
		go w.work(f)
	}
}

// work runs f, and whatever comes next while there are not too many idle.
func (w workers) work(f func()) {
	next := make(chan func(), 1)
	for {
		f()
		select {
		case w <- next:
			f = <-next
		default:
			return
		}
	}
}
