// SPDX-License-Identifier: Apache-2.0

package quarantine

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"

	"github.com/substorm/substorm/ingest-gateway/content"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

// Receive keeps what r holds, up to its end, as an object of an unknown sender's. Its
// receipt says that the object is safe in the bucket. It returns a cause where it
// is not: CauseUnknownSource where it did not try.
func (q *Quarantine) Receive(ctx context.Context, r io.Reader, source netip.AddrPort, port uint16) (wire.Receipt, wire.Cause, error) {
	select {
	case q.strange <- struct{}{}:
		defer func() { <-q.strange }()
	default:
		return wire.Receipt{}, wire.CauseUnknownSource, errors.New("too many unknown senders at a time")
	}
	f, err := q.scratch()
	if err != nil {
		return wire.Receipt{}, wire.CauseNoSpace, err
	}
	defer f.Close()
	in := &intake{q: q, to: f}
	_, err = io.CopyBuffer(struct{ io.Writer }{in}, struct{ io.Reader }{r}, make([]byte, 32<<10))
	kept := false
	defer func() {
		if !kept {
			q.release(in.reserved)
		}
	}()
	switch {
	case in.cause != "":
		return wire.Receipt{}, in.cause, err
	case err != nil:
		return wire.Receipt{}, wire.CauseReset, err
	case in.reserved == 0:
		return wire.Receipt{}, wire.CauseEmpty, nil
	}
	what := wire.Quarantined{
		Protocol: wire.ProtocolTCP, Source: source.String(), Port: port, ReceivedAt: time.Now().UTC(),
		Size: in.reserved, Digest: in.digest(), Looks: content.Looks(in.head),
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	if err := q.put(ctx, what, f); err != nil {
		return wire.Receipt{}, wire.CauseStoreUnavailable, err
	}
	kept = true
	return wire.Receipt{Digest: what.Digest, Bytes: what.Size}, "", nil
}

// put stores what an unknown sender sent.
func (q *Quarantine) put(ctx context.Context, what wire.Quarantined, body io.ReadSeeker) error {
	metadata, err := what.Metadata()
	if err != nil {
		return err
	}
	key := wire.QuarantineKey(q.cfg.Site, q.cfg.Gateway, what.ReceivedAt, what.Digest)
	err = q.cfg.Objects.Put(ctx, key, body, what.Size, objectstore.PutOptions{
		ContentType: what.Looks, Metadata: metadata, Digest: what.Digest,
	})
	if err != nil {
		return err
	}
	q.kept.WithLabelValues(what.Protocol).Inc()
	q.cfg.Logger.Info("stored data of an unknown sender in quarantine: see substorm adopt",
		"protocol", what.Protocol, "source", what.Source, "port", what.Port, "bytes", what.Size, "datagrams", what.Datagrams)
	return nil
}

// intake takes an object's bytes into scratch as long as there is space.
type intake struct {
	q        *Quarantine
	to       io.Writer
	reserved int64
	sum      interface{ Sum([]byte) []byte }
	hash     io.Writer
	head     []byte
	cause    wire.Cause
}

// Write implements io.Writer.
func (in *intake) Write(b []byte) (int, error) {
	if in.hash == nil {
		h := sha256.New()
		in.hash, in.sum = h, h
	}
	if in.cause = in.q.reserve(int64(len(b))); in.cause != "" {
		return 0, fmt.Errorf("quarantine: %s", in.cause)
	}
	in.reserved += int64(len(b))
	in.head = append(in.head, b[:min(len(b), sniff-min(len(in.head), sniff))]...)
	_, _ = in.hash.Write(b) // never fails
	n, err := in.to.Write(b)
	if err != nil {
		in.cause = wire.CauseNoSpace
	}
	return n, err
}

func (in *intake) digest() wire.Digest { return wire.Digest(in.sum.Sum(nil)) }
