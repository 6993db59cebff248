// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/bench/internal/lab"
	"github.com/substorm/substorm/bench/internal/web"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// days of receipt, all of them in the window.
	days = 50
	// packBytes is how large a pack becomes.
	packBytes = 8 << 20
	gateway   = "north-0"
	// noticeBytes is space for the notices of all files in their stream, and pending how many
	// are on their way.
	noticeBytes = 4 << 30
	pending     = 4000
)

// filler stores files for both: in packs, as gateways do, and in a folder.
type filler struct {
	site *web.Site
	root string
}

// fill makes the tree of an instrument: so many files, of the same number each day.
func (f *filler) fill(ctx context.Context, instrument string, count int) error {
	if err := lab.Widen(ctx, f.site.JS, wire.NoticeStream(web.SiteCode), noticeBytes); err != nil {
		return err
	}
	begin := time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -days)
	last := ""
	for day := range days {
		p := &pack{filler: f, ctx: ctx, instrument: instrument, day: begin.AddDate(0, 0, day), each: 23 * time.Hour / time.Duration(count/days+1)}
		for i := count * day / days; i < count*(day+1)/days; i++ {
			name, err := p.add(i)
			if err != nil {
				return err
			}
			last = name
		}
		if err := p.close(); err != nil {
			return err
		}
	}
	return f.site.Await(ctx, "/archive/"+instrument+"/"+last)
}

// pack is a pack that is being filled.
type pack struct {
	*filler
	ctx        context.Context
	instrument string
	day        time.Time
	each       time.Duration
	received   int

	number  uint64
	buffer  bytes.Buffer
	tar     *tar.Writer
	records []wire.Record
}

// add adds a file, and writes it into the folder too.
func (p *pack) add(i int) (name string, err error) {
	at := p.day.Add(time.Duration(p.received) * p.each)
	p.received++
	name = fmt.Sprintf("%s/%s-%06d.jpg", at.Format("2006/01/02"), at.Format("150405"), i)
	body := web.Noise(sizeOf(i), i)
	if p.tar == nil {
		p.tar = tar.NewWriter(&p.buffer)
	}
	if err := p.tar.WriteHeader(&tar.Header{Name: p.instrument + "/" + name, Size: int64(len(body)), Mode: 0o644, ModTime: at}); err != nil {
		return "", err
	}
	p.records = append(p.records, wire.Record{
		Name: name, Path: name, Offset: int64(p.buffer.Len()), Length: int64(len(body)), Size: int64(len(body)), Digest: sha256.Sum256(body), MediaType: "image/jpeg",
		State: wire.StateCurrent, ObservedFrom: &at, ObservedTo: &at, ReceivedAt: at, TimeSource: wire.TimeSourceName, Gateway: gateway, Incarnation: "one", Source: "192.0.2.7:40000",
	})
	if _, err := p.tar.Write(body); err != nil {
		return "", err
	}
	if err := p.file(name, body, at); err != nil {
		return "", err
	}
	if p.buffer.Len() >= packBytes {
		err = p.close()
	}
	return name, err
}

// sizeOf is the size of a file: the mean of all files is the study's.
func sizeOf(i int) int {
	const mean = bytesOfAll / files
	return mean/2 + (i*7919)%mean
}

func (p *pack) file(name string, body []byte, at time.Time) error {
	path := filepath.Join(p.root, p.instrument, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(path, body, 0o644); err != nil {
		return err
	}
	return os.Chtimes(path, at, at)
}

// close stores a pack, and announces what is in it.
func (p *pack) close() error {
	if p.tar == nil {
		return nil
	}
	if err := p.tar.Close(); err != nil {
		return err
	}
	p.number++
	key := wire.PackKey(web.SiteCode, p.records[0].ReceivedAt, gateway, p.instrument, p.number)
	if err := p.site.Store.Put(p.ctx, key, bytes.NewReader(p.buffer.Bytes()), int64(p.buffer.Len()), objectstore.PutOptions{}); err != nil {
		return err
	}
	if err := p.announce(key); err != nil {
		return err
	}
	p.buffer.Reset()
	p.tar, p.records = nil, nil
	return nil
}

func (p *pack) announce(key string) error {
	var sent []jetstream.PubAckFuture
	for i := range p.records {
		r := p.records[i]
		r.Key, r.ID = key, wire.MemberID(key, r.Offset)
		m, err := stream.NoticeMessage(wire.Notice{Site: web.SiteCode, Instrument: p.instrument, Record: r}, gateway)
		if err != nil {
			return err
		}
		ack, err := p.site.JS.PublishMsgAsync(m)
		if err != nil {
			return err
		}
		if sent = append(sent, ack); len(sent) == pending {
			if err := wait(p.ctx, sent); err != nil {
				return err
			}
			sent = sent[:0]
		}
	}
	return wait(p.ctx, sent)
}

func wait(ctx context.Context, sent []jetstream.PubAckFuture) error {
	for _, ack := range sent {
		select {
		case <-ack.Ok():
		case err := <-ack.Err():
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
