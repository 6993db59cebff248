// SPDX-License-Identifier: Apache-2.0

package feedserver

const (
	// unlimitedRing and unlimitedArchive are what rings and the archive take, in bytes,
	// where nothing limits the memory, unlimitedSockets how many sockets there are then,
	// and live connections as many.
	unlimitedRing    = 64 << 20
	unlimitedArchive = 256 << 20
	unlimitedSockets = 1 << 14
	// ringShare, archiveShare and connectionShare are the parts of the memory limit that
	// rings, the archive and connections may take; the rest is the registry, what waits
	// in Latest and Sample, and the runtime.
	ringShare       = 1. / 8
	archiveShare    = 5. / 16
	connectionShare = 3. / 8
	// connectionCost is what a consumer's connection takes at most: a batch, and what the
	// kernel holds for a client that does not read (endpoint.Narrow). A download takes less,
	// see endpoint.Listen.
	connectionCost = 512 << 10
	minConnections = 32
	// socketCost is what a connection of TCP takes that asks for little, its goroutines,
	// buffers and TLS; sockets that may be a consumer's have their share with those. Some
	// wait, so that who has a token finds one.
	socketShare = 1. / 16
	socketCost  = 32 << 10
)

// fit fills in what is to follow from a memory limit in bytes, 0 for none.
func (c *Config) fit(limit int64) {
	if c.RingSize == 0 {
		c.RingSize = unlimitedRing
		if limit > 0 {
			c.RingSize = max(int64(ringShare*float64(limit)), minRing)
		}
	}
	if c.ArchiveSize == 0 {
		c.ArchiveSize = unlimitedArchive
		if limit > 0 {
			c.ArchiveSize = max(int64(archiveShare*float64(limit)), minArchive)
		}
	}
	if c.RsyncAddress != "" {
		c.rsyncSize = share(c.ArchiveSize, rsyncShare)
		c.ArchiveSize -= c.rsyncSize
	}
	if c.MaxConnections == 0 {
		c.MaxConnections = unlimitedSockets
		if limit > 0 {
			c.MaxConnections = max(int(connectionShare*float64(limit)/connectionCost), minConnections)
		}
	}
	if c.MaxSockets == 0 {
		c.MaxSockets = unlimitedSockets
		if limit > 0 {
			c.MaxSockets = int(socketShare * float64(limit) / socketCost)
		}
		c.MaxSockets = max(c.MaxSockets, 2*c.MaxConnections)
	}
}
