// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/plan/bus"
)

// skipped is how far behind the hub stream's last message of the previous stream a recreated stream of copies begins, so that its messages
// are later than all that are still on the way.
const skipped = 1 << 32

// copies maintains the streams with the data that leaves sent, in the account that leaves link into. It creates them, removes what the
// hub's streams have, and recreates a stream from which anything else was removed: a leaf can purge and delete streams there.
type copies struct {
	want wanted
	log  *slog.Logger

	nc *nats.Conn
	js jetstream.JetStream
	// retired: streams of leaves that the Site has no more take nothing more.
	retired bool
}

func (c *copies) close() {
	if c != nil && c.nc != nil {
		c.nc.Close()
	}
}

// connect waits for a connection to the account of leaves.
func (c *copies) connect(ctx context.Context) error {
	connecting, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	if c.nc == nil {
		cfg := *c.want.leaves
		cfg.Logger = c.log
		nc, err := stream.Connect(ctx, cfg)
		if err != nil {
			return err
		}
		if c.js, err = jetstream.New(nc); err != nil {
			nc.Close()
			return err
		}
		c.nc = nc
	}
	if err := stream.WaitConnected(connecting, c.nc); err != nil {
		return errors.Join(err, c.nc.LastError())
	}
	return nil
}

// try looks after the streams. Ours is the JetStream of the account with the hub's.
func (c *copies) try(ctx context.Context, ours jetstream.JetStream) error {
	if err := c.connect(ctx); err != nil {
		return err
	}
	if !c.retired {
		if err := c.retire(ctx); err != nil {
			return err
		}
		c.retired = true
	}
	var unheard []bus.Stream
	for _, s := range c.want.copied {
		try, cancel := context.WithTimeout(ctx, tryTimeout)
		is, err := c.keep(try, ours, s)
		cancel()
		if err != nil {
			return fmt.Errorf("stream %s: %w", s.Name, err)
		}
		if is {
			unheard = append(unheard, s)
		}
	}
	return c.resume(ctx, unheard)
}

// retire stops taking from leaves that the Site has no more. Their streams stay: the newest message is the position to continue from if the
// leaf comes back.
func (c *copies) retire(ctx context.Context) error {
	try, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	names := c.js.StreamNames(try)
	var gone []string
	for name := range names.Name() {
		_, is := wire.ParseCopiedStream(c.want.marker.Code, name)
		if is && !slices.ContainsFunc(c.want.copied, func(s bus.Stream) bool { return s.Name == name }) {
			gone = append(gone, name)
		}
	}
	if names.Err() != nil && !errors.Is(names.Err(), jetstream.ErrEndOfData) {
		return fmt.Errorf("list streams: %w", names.Err())
	}
	for _, name := range gone {
		s, err := c.js.Stream(try, name)
		if err != nil {
			return fmt.Errorf("stream %s: %w", name, err)
		}
		cfg := s.CachedInfo().Config
		if len(cfg.Sources) == 0 {
			continue
		}
		cfg.Sources = nil
		if _, err := c.js.UpdateStream(try, cfg); err != nil {
			return fmt.Errorf("stream %s: %w", name, err)
		}
	}
	return nil
}

// keep looks after one stream, and returns whether its leaf is unheard.
func (c *copies) keep(ctx context.Context, ours jetstream.JetStream, s bus.Stream) (unheard bool, err error) {
	passed, err := c.passed(ctx, ours, s.Name)
	if err != nil {
		return false, err
	}
	existing, err := c.js.Stream(ctx, s.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return false, c.create(ctx, s, passed)
	}
	if err != nil {
		return false, err
	}
	info := existing.CachedInfo()
	if _, err := ensureStream(ctx, c.js, s, c.want); err != nil {
		return false, err
	}
	// Messages before the first one were removed because the hub's stream has them.
	begins := max(1, info.Config.FirstSeq, passed+1)
	if info.State.FirstSeq > begins || passed > info.State.LastSeq {
		c.log.Warn("messages of a leaf were removed before the hub's stream had them; requesting everything that the leaf still has",
			"stream", s.Name, "have", passed, "first", info.State.FirstSeq, "last", info.State.LastSeq)
		if err := c.js.DeleteStream(ctx, s.Name); err != nil {
			return false, err
		}
		return false, c.create(ctx, s, passed)
	}
	unheard = slices.ContainsFunc(info.Sources, stalled)
	if passed <= info.State.FirstSeq {
		return unheard, nil
	}
	// The message at passed stays, and with it which message of the leaf's it is.
	return unheard, existing.Purge(ctx, jetstream.WithPurgeSequence(passed))
}

// create makes a stream that takes all that the leaf has. Its first message is later than
// all that the hub's stream took of a stream of that name.
func (c *copies) create(ctx context.Context, s bus.Stream, passed uint64) error {
	base := jetstream.StreamConfig{Name: s.Name}
	if passed > 0 {
		base.FirstSeq = passed + skipped
	}
	cfg, err := streamConfig(base, s, c.want.marker)
	if err != nil {
		return err
	}
	_, err = c.js.CreateStream(ctx, cfg)
	return err
}

// passed returns the sequence, in a stream of copies, of the newest message that the hub's
// stream has of it; 0 where it has none.
func (c *copies) passed(ctx context.Context, ours jetstream.JetStream, name string) (uint64, error) {
	for _, s := range c.want.streams {
		for _, source := range s.Sources {
			if source.Stream != name {
				continue
			}
			header, err := stream.LastHeader(ctx, ours, s.Name, source.Subjects[0].To)
			if err != nil {
				return 0, err
			}
			from, sequence, ok := wire.SourcePosition(header.Get(wire.HeaderStreamSource))
			if !ok || from != name {
				return 0, nil // taken from the leaf itself, before there was an account
			}
			return sequence, nil
		}
	}
	return 0, fmt.Errorf("no stream of the Site sources from it")
}
