// SPDX-License-Identifier: Apache-2.0

package ingestgateway

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/wire"
)

// A pod that is deleted by force and recreated on another volume has the name of one that may still
// run, behind a partition, and whose spool may hold objects. The pod that started last reports
// under the name; the report of the other one stands beside it (wire.VolumeReporter), so that its
// spool is not taken for empty. `substorm spool abandon` removes that report.

// putGateway writes the pod's report, and names the revision that it replaces: so it notices
// another pod that reports under the same name.
func (r *reporter) putGateway(ctx context.Context, status wire.GatewayStatus) error {
	key := wire.GatewayStatusKey(status.Gateway)
	if r.displaced {
		return r.putBeside(ctx, status)
	}
	err := r.replace(ctx, key, status)
	if !errors.Is(err, jetstream.ErrKeyExists) && !errors.Is(err, jetstream.ErrKeyRevisionMismatch) {
		return err
	}
	if err := r.checkTwin(ctx, key, status); err != nil {
		return err
	}
	if r.displaced {
		return r.putBeside(ctx, status)
	}
	return r.replace(ctx, key, status)
}

// replace writes the report in the place of the one that is known.
func (r *reporter) replace(ctx context.Context, key string, status wire.GatewayStatus) error {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	kv, err := r.bucket(ctx)
	if err != nil {
		return err
	}
	value, err := wire.Encode(status)
	if err != nil {
		return err
	}
	var revision uint64
	if r.revision == 0 {
		revision, err = kv.Create(ctx, key, value)
	} else {
		revision, err = kv.Update(ctx, key, value, r.revision)
	}
	if err != nil {
		return err
	}
	r.revision = revision
	return r.clear(ctx, kv, status)
}

// clear removes, once, what stood beside another pod's report and was of this volume.
func (r *reporter) clear(ctx context.Context, kv jetstream.KeyValue, status wire.GatewayStatus) error {
	if r.cleared {
		return nil
	}
	beside := wire.GatewayStatusKey(wire.VolumeReporter(status.Gateway, status.Volume))
	_, err := kv.Get(ctx, beside)
	if err == nil {
		err = kv.Delete(ctx, beside)
	}
	if err != nil && !errors.Is(err, jetstream.ErrKeyNotFound) {
		return err
	}
	r.cleared = true
	return nil
}

// checkTwin reads the report that stands in the place of ours. A report of the same volume is
// an earlier incarnation's. If it is of another volume's pod, the pod that started first
// makes space.
func (r *reporter) checkTwin(ctx context.Context, key string, ours wire.GatewayStatus) error {
	call, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	kv, err := r.bucket(call)
	if err != nil {
		return err
	}
	e, err := kv.Get(call, key)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		r.revision = 0
		clear(r.said) // the bucket was recreated, without what was said
		r.heard = 0
		return nil
	}
	if err != nil {
		return err
	}
	r.revision = e.Revision()
	theirs, err := wire.Decode[wire.GatewayStatus](e.Value())
	if err != nil || theirs.Volume == "" || theirs.Volume == ours.Volume {
		return nil // what cannot be read is of an earlier incarnation
	}
	if theirs.StartedAt.After(ours.StartedAt) {
		r.displaced = true
		r.g.log.Error("another pod of this name runs on another volume: this one drains its spool and reports under another name",
			"other", theirs.Incarnation, "node", theirs.Node, "report", wire.VolumeReporter(ours.Gateway, ours.Volume))
		return nil
	}
	if theirs.Stopped && (theirs.Spool == nil || theirs.Spool.Objects == 0) {
		return nil
	}
	r.g.log.Error("a pod of this name ran on another volume, and it is unknown whether the objects in its spool are archived: bring the volume back, or abandon it",
		"other", theirs.Incarnation, "node", theirs.Node, "command", "substorm spool abandon "+wire.VolumeReporter(theirs.Gateway, theirs.Volume))
	return r.putBeside(ctx, theirs)
}

// putBeside writes the report of a pod whose name another one has.
func (r *reporter) putBeside(ctx context.Context, status wire.GatewayStatus) error {
	status.Gateway = wire.VolumeReporter(status.Gateway, status.Volume)
	return r.put(ctx, wire.GatewayStatusKey(status.Gateway), status)
}
