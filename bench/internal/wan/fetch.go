// SPDX-License-Identifier: Apache-2.0

package wan

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/substorm/substorm/bench/internal/process"
	"github.com/substorm/substorm/internal/mirrorindex"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/mirror-jobs/folder"
	"github.com/substorm/substorm/mirror-jobs/https"
)

// Client is which one fetches.
type Client string

// The clients.
const (
	// Ours is the client of mirrors, which reads ahead of the consumer of the bytes.
	Ours Client = "ours"
	// HTTP1 and HTTP2 are the standard library's, which read as bytes are taken: with as many connections as there are
	// requests, and with one.
	HTTP1 Client = "HTTP/1.1"
	HTTP2 Client = "HTTP/2"
)

// Order is what to fetch, in parts of folder.PartSize.
type Order struct {
	Client Client `json:"client"`
	// URL of the server, and the file of the authority of its certificate.
	URL string `json:"url"`
	CA  string `json:"ca,omitempty"`
	// Requests at the same time.
	Requests int      `json:"requests"`
	Objects  []Object `json:"objects"`
	// Folder that they come into; empty: memory, where only digests of parts are computed.
	Folder string `json:"folder,omitempty"`
	// Receiver is how bytes are taken.
	Receiver Pauses `json:"receiver"`
}

// Answer is what came of an order.
type Answer struct {
	Seconds float64 `json:"seconds"`
	Error   string  `json:"error,omitempty"`
}

// environment has a process be a worker.
const environment = "SUBSTORM_BENCH_WAN"

// Main is called first by a main. In a worker it does not return.
func Main() {
	process.Work(environment, func(o Order) (a Answer) {
		begun := time.Now()
		if err := o.fetch(context.Background()); err != nil {
			a.Error = err.Error()
		}
		a.Seconds = time.Since(begun).Seconds()
		return a
	})
}

// Fetch has this program fetch at the far end of a link, and returns how many bytes a second came.
func Fetch(link *testenv.Link, o Order) (bytesPerSecond float64, err error) {
	program, err := os.Executable()
	if err != nil {
		return 0, err
	}
	order, err := json.Marshal(o)
	if err != nil {
		return 0, err
	}
	cmd := link.Far(context.Background(), program)
	cmd.Env = append(os.Environ(), environment+"=1")
	cmd.Stdin, cmd.Stderr = bytes.NewReader(order), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return 0, fmt.Errorf("the client at the far end: %w", err)
	}
	var a Answer
	if err := json.Unmarshal(out, &a); err != nil {
		return 0, err
	}
	if a.Error != "" {
		return 0, errors.New(a.Error)
	}
	var size int64
	for _, of := range o.Objects {
		size += of.Size
	}
	return float64(size) / a.Seconds, nil
}

// part asks for length bytes of an object. Take may be called again, with how many it has had.
type part func(ctx context.Context, of Object, offset, length int64, take func(had int64, body io.Reader) error) error

func (o *Order) fetch(ctx context.Context) error {
	at, err := url.Parse(o.URL)
	if err != nil {
		return err
	}
	trusts, err := https.TLS(o.CA, "", "")
	if err != nil {
		return err
	}
	trusts.ServerName = serverName
	ask := o.standard(trusts)
	if o.Client == Ours {
		client := https.New(https.Config{URL: at, TLS: trusts, Connections: o.Requests, Agent: "bench"})
		defer client.Close()
		ask = func(ctx context.Context, of Object, offset, length int64, take func(int64, io.Reader) error) error {
			return client.Part(ctx, Instrument, of.Path, of.Digest, offset, length, take)
		}
	}
	if o.Folder == "" {
		return o.all(ctx, ask, nil)
	}
	to, err := folder.Open(o.Folder)
	if err != nil {
		return err
	}
	return errors.Join(o.all(ctx, ask, to), to.Sync(), to.Close())
}

// all fetches the objects; their parts are requested in order.
func (o *Order) all(ctx context.Context, ask part, to *folder.Folder) error {
	objects, ctx := errgroup.WithContext(ctx)
	requests, ctx := errgroup.WithContext(ctx)
	requests.SetLimit(o.Requests)
	for _, of := range o.Objects {
		write, finish, err := o.object(to, of)
		if err != nil {
			return err
		}
		var parts sync.WaitGroup
		for n := range int((of.Size + folder.PartSize - 1) / folder.PartSize) {
			offset := int64(n) * folder.PartSize
			parts.Add(1)
			requests.Go(func() error {
				defer parts.Done()
				return ask(ctx, of, offset, min(folder.PartSize, of.Size-offset), func(had int64, body io.Reader) error { return write(n, had, o.receiver(body)) })
			})
		}
		objects.Go(func() error {
			parts.Wait()
			return finish()
		})
	}
	return errors.Join(requests.Wait(), objects.Wait())
}

// object returns functions that write the parts of an object, and compare the whole. For an object in memory only the digests of
// parts are computed.
func (o *Order) object(to *folder.Folder, of Object) (write func(n int, had int64, body io.Reader) error, finish func() error, err error) {
	if to == nil {
		return func(_ int, _ int64, body io.Reader) error {
			_, err := io.Copy(sha256.New(), body)
			return err
		}, func() error { return nil }, nil
	}
	l, err := to.Large(Instrument, &mirrorindex.Entry{Path: of.Path, Size: of.Size, Digest: of.Digest, ID: of.Path, ReceivedAt: time.Now()})
	if err != nil {
		return nil, nil, err
	}
	return l.Write, l.Finish, nil
}

// receiver reads as the receiver does.
func (o *Order) receiver(body io.Reader) io.Reader {
	if o.Receiver.Mean <= 0 {
		return body
	}
	return taken{body, o.Receiver.begin()}
}

// standard asks by the standard library.
func (o *Order) standard(trusts *tls.Config) part {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(o.Client != HTTP2)
	protocols.SetHTTP2(o.Client == HTTP2)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: trusts, MaxConnsPerHost: o.Requests, MaxIdleConnsPerHost: o.Requests, Protocols: protocols}}
	return func(ctx context.Context, of Object, offset, length int64, take func(int64, io.Reader) error) error {
		q, err := http.NewRequestWithContext(ctx, http.MethodGet, o.URL+"/archive/"+Instrument+"/"+of.Path, nil)
		if err != nil {
			return err
		}
		q.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", offset, offset+length-1))
		answer, err := client.Do(q)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		major := 1
		if o.Client == HTTP2 {
			major = 2
		}
		if answer.StatusCode != http.StatusPartialContent || answer.ContentLength != length || answer.ProtoMajor != major {
			return fmt.Errorf("%s answers %s by %s with %d bytes", q.URL, answer.Status, answer.Proto, answer.ContentLength)
		}
		return take(0, answer.Body)
	}
}
