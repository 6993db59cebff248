// SPDX-License-Identifier: Apache-2.0

package announce

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/ingest-gateway/archive/ledger"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

// Announcement is a notice that is in the stream.
type Announcement struct {
	announcer   *Announcer
	publication ledger.Publication
	notice      wire.Notice
	ack         stream.Ack
}

func (d *Announcement) id() string {
	return wire.PublicationID(d.announcer.cfg.Gateway, d.announcer.cfg.Incarnation, d.publication.Number)
}

// Count counts the announcement in the ledger. Call one of Count and Leave, once.
func (d *Announcement) Count() {
	n := &d.notice
	count := d.publication.AnnouncedObject
	if n.Incarnation != d.announcer.cfg.Incarnation {
		count = d.publication.AnnouncedAdopted
	}
	count(n.Instrument, n.ReceivedAt, n.Size, n.Digest, d.ack.Sequence)
}

// Duplicate says that the stream had the notice already: another published it, within the last two minutes.
func (d *Announcement) Duplicate() bool { return d.ack.Duplicate }

// Leave says that an earlier incarnation published the message, and that it is counted there.
func (d *Announcement) Leave() { d.publication.NotAnnounced() }

// Publisher returns the incarnation that counts what is in the stream: ours, or an earlier one whose notice was there
// before. Errors: stream.ErrUnavailable.
func (d *Announcement) Publisher(ctx context.Context) (incarnation string, err error) {
	ours := d.announcer.cfg.Incarnation
	if !d.ack.Duplicate {
		return ours, nil
	}
	s, err := d.announcer.cfg.JetStream.Stream(ctx, wire.NoticeStream(d.notice.Site))
	if err != nil {
		return "", fmt.Errorf("notice of %s: %w: %w", d.notice.Key, stream.ErrUnavailable, err)
	}
	msg, err := s.GetMsg(ctx, d.ack.Sequence)
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return d.notice.Incarnation, nil // it was published long ago
	case err != nil:
		return "", fmt.Errorf("notice of %s: %w: %w", d.notice.Key, stream.ErrUnavailable, err)
	}
	_, incarnation, _, err = wire.ParsePublicationID(msg.Header.Get(wire.HeaderPublication))
	if err != nil {
		return ours, nil // the sweep's, which nobody counts as announced
	}
	return incarnation, nil
}
