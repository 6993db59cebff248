// SPDX-License-Identifier: Apache-2.0

// Package holder has what each part of the archivist is given: all of them work while their
// pod holds the Site's lease.
package holder

import (
	"log/slog"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/objectstore"
)

// Lease says whether we may still write, see stream.Lease.
type Lease interface{ Check() error }

// Base is what all parts have in common.
type Base struct {
	// Site is the Site's code, Pod the name of the pod, and Incarnation this process of it.
	Site, Pod, Incarnation string

	JetStream jetstream.JetStream
	Store     objectstore.Store
	Lease     Lease
	Log       *slog.Logger
}
