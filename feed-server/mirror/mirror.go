// SPDX-License-Identifier: Apache-2.0

// Package mirror lists for programs that copy the archive what there is to copy, so that the cost
// of asking depends on what changed and not on the size of the archive. internal/mirrorindex has
// the documents.
package mirror

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/semaphore"

	"github.com/substorm/substorm/feed-server/endpoint"
	"github.com/substorm/substorm/internal/catalog"
	"github.com/substorm/substorm/internal/mirrorindex"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// writeBuffer is how much is written to a client at a time.
	writeBuffer = 64 << 10
	// defaultMemory is Config.Memory by default.
	defaultMemory = 4 * endpoint.CompressorCost
)

// Catalog knows what the archive holds. internal/catalog is one.
type Catalog interface {
	// InstrumentTags returns the tags of all instruments, by name.
	InstrumentTags(ctx context.Context) (map[string]string, error)
	// Days returns the days that have objects, ascending.
	Days(ctx context.Context, instrument string) ([]wire.RootDay, error)
	// DayTag returns the tag of a day without reading it.
	DayTag(ctx context.Context, instrument string, day wire.Day) (string, error)
	// Day returns the objects of a day, in the order of paths.
	Day(ctx context.Context, instrument string, day wire.Day) (*catalog.Day, error)
}

// Config says what mirrors can learn.
type Config struct {
	// Site is the Site's code.
	Site        string
	Catalog     Catalog
	AccessCheck *endpoint.AccessCheck
	// JetStream has the ledger and the reports, to which what mirrors confirm is written.
	JetStream jetstream.JetStream
	// Bundles is how many bundles the client is sent at the same time.
	Bundles func(*endpoint.Request) int
	// Logger gets a line for each mirror whose clock is wrong; nil: none.
	Logger *slog.Logger
	// Memory bounds what compresses answers, in bytes: if there are more at a time, the others are not compressed.
	Memory int64
}

// Index answers at its Endpoints.
type Index struct {
	cfg         Config
	compressors *semaphore.Weighted
}

// New returns an Index.
func New(cfg Config) *Index {
	if cfg.Memory <= 0 {
		cfg.Memory = defaultMemory
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Index{cfg, semaphore.NewWeighted(cfg.Memory / endpoint.CompressorCost)}
}

// Endpoints are the patterns that are answered, as http.ServeMux reads them.
func (x *Index) Endpoints() map[string]http.HandlerFunc {
	return map[string]http.HandlerFunc{
		mirrorindex.RootPath + "{$}":        x.cfg.AccessCheck.AnswerBulk(x.root),
		"POST " + mirrorindex.DaysPath:      x.cfg.AccessCheck.AnswerQuestion(x.days),
		"POST " + mirrorindex.ListsPath:     x.cfg.AccessCheck.AnswerQuestion(x.lists),
		"POST " + mirrorindex.ConfirmedPath: x.cfg.AccessCheck.AnswerQuestion(x.confirmed),
	}
}

// offered returns the names of the Site's own instruments whose archive the client may read.
func offered(v *endpoint.Request) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(v.Snapshot.Instruments)), func(name string) bool { return wire.IsGuest(name) || !v.MayRead(name) })
}

// answer writes lines, compressed where the client takes that. The function write returns an
// error of the catalog, endpoint.ErrClient or endpoint.ErrOver.
func (x *Index) answer(v *endpoint.Request, write func(*lines) error) {
	h := v.W.Header()
	h.Set("Content-Type", mirrorindex.MediaLines)
	h.Set("Cache-Control", "private, no-store")
	h.Set("Vary", "Accept-Encoding, Authorization")
	compressed := endpoint.AcceptsZstd(v.Request) && x.compressors.TryAcquire(1) // a client may ask often and read slowly
	if compressed {
		defer x.compressors.Release(1)
		h.Set("Content-Encoding", "zstd")
	}
	v.W.WriteHeader(http.StatusOK)
	v.Finish(v.URL.Path, x.send(v, compressed, write))
}

func (x *Index) send(v *endpoint.Request, compressed bool, write func(*lines) error) error {
	out := bufio.NewWriterSize(endpoint.Paced{Request: v}, writeBuffer)
	if !compressed {
		if err := write(newLines(out)); err != nil {
			return err
		}
		return out.Flush()
	}
	z := endpoint.NewCompressor(out)
	defer z.Close()
	if err := write(newLines(z)); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	return out.Flush()
}

// lines writes JSON lines.
type lines struct {
	out  io.Writer
	line bytes.Buffer
	json *json.Encoder
}

func newLines(out io.Writer) *lines {
	l := &lines{out: out}
	l.json = json.NewEncoder(&l.line)
	l.json.SetEscapeHTML(false)
	return l
}

func (l *lines) write(v any) error {
	l.line.Reset()
	if err := l.json.Encode(v); err != nil {
		return err
	}
	_, err := l.out.Write(l.line.Bytes())
	return err
}
