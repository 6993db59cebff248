// SPDX-License-Identifier: Apache-2.0

package ingestgateway

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"

	"golang.org/x/sys/unix"

	"github.com/substorm/substorm/ingest-gateway/receive/tcp"
	"github.com/substorm/substorm/ingest-gateway/receive/udp/kernel"
	"github.com/substorm/substorm/internal/cgroup"
)

const (
	// minMemoryBudget leaves objects and telemetry enough to make progress.
	minMemoryBudget = 4 << 20
	// unlimitedBudget is the budget where nothing limits the memory.
	unlimitedBudget = 256 << 20
	// telemetryShare is the part of the budget that is telemetry's: a flood of
	// objects must not crowd out datagrams, whose senders cannot wait.
	telemetryShare = 4
	// datagramShare of telemetry's part is what datagrams are read into.
	datagramShare = 4
	// packsShare is the part of the budget that is kept for packs: where a burst of
	// small objects has filled all slabs, copying them into packs frees these.
	packsShare = 16
	// spoolShare and copiesShare are the parts of the volume that the spool and copies of other
	// gateways' spools may take, of the space that is free or their own already; scratchShare is
	// the part of the free space that scratch may take. Counters, the registry and a segment in
	// transfer need some too.
	spoolShare   = 0.45
	copiesShare  = 0.2
	scratchShare = 0.2
	// connectionShare is the part of the memory limit that connections may take
	// beside the budget, connectionCost what one takes: a goroutine, a socket,
	// the state of a digest. Idle ones take half of it (make bench NAME=ingest-memory).
	connectionShare = 6
	connectionCost  = 16 << 10
	minConnections  = 256
)

// limits are what memory lets the gateway take.
type limits struct {
	// budget in bytes for what is received and not yet safe.
	budget      int64
	connections int64
}

// telemetry is what messages may take, and datagrams what these are read into: together they are
// telemetry's part.
func (l limits) telemetry() int64 { return l.budget/telemetryShare - l.datagrams() }
func (l limits) datagrams() int64 {
	return min(l.budget/telemetryShare/datagramShare, kernel.MaxMemory())
}
func (l limits) packs() int64   { return l.budget / packsShare }
func (l limits) objects() int64 { return l.budget - l.budget/telemetryShare - l.packs() }

// memoryLimits returns the limits, and makes the heap respect the control
// group's. Budget is the one that was asked for, or 0.
func memoryLimits(budget int64) limits {
	return limitsUnder(cgroup.Memory(), budget)
}

// limitsUnder returns the limits under a memory limit in bytes, or 0 for none. The budget covers
// objects, packs and telemetry together.
func limitsUnder(limit, budget int64) limits {
	l := limits{budget: unlimitedBudget, connections: tcp.DefaultMaxConnections}
	if limit > 0 {
		l.budget = max(limit/2, minMemoryBudget)
		l.connections = max(limit/connectionShare/connectionCost, minConnections)
	}
	if budget > 0 {
		l.budget = budget
	}
	return l
}

// scratchSize returns how many bytes scratch may take of a volume.
func scratchSize(dir string) (int64, error) {
	free, err := freeSpace(dir)
	return int64(scratchShare * free), err
}

// freeSpace returns the bytes that are free on a folder's volume.
func freeSpace(dir string) (float64, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return 0, fmt.Errorf("free space of %s: %w", dir, err)
	}
	return float64(fs.Bavail) * float64(fs.Bsize), nil
}

// volume is the pod's, and no other gateway's while it is open: the lock ends with the
// process.
type volume struct {
	*os.File
	// id distinguishes it from other volumes.
	id string
}

// lockVolume opens the volume in a folder. Its file "lock" holds its id.
func lockVolume(dir string) (*volume, error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("volume: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("volume: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("volume %s: another gateway runs on it: %w", dir, err)
	}
	id, err := io.ReadAll(io.LimitReader(f, 64))
	if err == nil && !volumeID.Match(id) {
		id = []byte(newIncarnation())
		_, err = f.WriteAt(id, 0)
		err = errors.Join(err, f.Truncate(int64(len(id))), f.Sync())
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("volume %s: %w", dir, err)
	}
	return &volume{f, string(id)}, nil
}

// volumeID is what the id of a volume looks like.
var volumeID = regexp.MustCompile(`^[0-9a-f]{16}$`)
