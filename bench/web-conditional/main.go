// SPDX-License-Identifier: Apache-2.0

// Command web-conditional measures HEAD and conditional GET of a hot object beside nginx with the same file, and what a 304 costs beside our own GET of it.
package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/substorm/substorm/bench/internal/lab"
	"github.com/substorm/substorm/bench/internal/report"
	"github.com/substorm/substorm/bench/internal/web"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// secondsVariable is how long each measurement takes.
	secondsVariable     = "SUBSTORM_BENCH_WEB_TIME"
	size                = 200_000
	name                = "hot.jpg"
	ours, peer, library = "feed-server", "nginx", "net/http"
	connections         = 16
)

var rounds = report.Rounds(5)

// The cases.
const (
	heads     = "HEAD"
	unchanged = "304"
	whole     = "GET of 200 KB"
)

func main() { lab.Run(run, web.Main) }

func run(l *lab.Lab) error {
	ctx := context.Background()
	during, err := lab.Duration(secondsVariable, 8*time.Second)
	if err != nil {
		return err
	}
	site := web.NewSite(l, web.Options{Instruments: []wire.InstrumentEntry{web.Camera("allsky-1", 10*time.Second)}})
	nginx, err := web.StartNginx(l, web.ServerCores)
	if err != nil {
		return err
	}
	hot := web.Object{Instrument: "allsky-1", Name: name, MediaType: "image/jpeg", Body: web.Noise(size, 1), At: time.Now().UTC()}
	if _, err := site.Put(ctx, hot); err != nil {
		return err
	}
	if err := site.Await(ctx, hot.URL()); err != nil {
		return err
	}
	if err := nginx.Put(ctx, name, hot.Body); err != nil {
		return err
	}
	alone, err := web.StartAlone(l, web.ServerCores, hot)
	if err != nil {
		return err
	}
	b := &bench{lab: l, report: report.New("web-conditional", rounds), during: during, candidates: []candidate{
		{ours, "http://" + site.Server.Address(), hot.URL(), site.Server.PID()}, {peer, nginx.URL(""), "/" + name, nginx.PID()},
		{library, "http://" + alone.Address, "/" + name, alone.PID},
	}}
	if err := b.measure(ctx); err != nil {
		return err
	}
	return b.report.Finish()
}

// candidate is a server with the object.
type candidate struct {
	name, base, path string
	pid              int
}

type bench struct {
	lab        *lab.Lab
	report     *report.Report
	during     time.Duration
	candidates []candidate
}

func (b *bench) measure(ctx context.Context) error {
	for round := range b.report.Each() {
		for i := range b.candidates {
			c := b.candidates[(i+round)%len(b.candidates)]
			if err := b.round(ctx, c); err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
		}
	}
	r := b.report
	r.Note("An object of %d B, %d connections; the server on one core, wrk on the other. Processor time is the server's, bytes are those of one answer with its head.", size, connections)
	r.Note("net/http is Go's server alone: the same object from memory, with an entity tag.")
	for _, c := range []string{heads, unchanged} {
		r.Compare(c+"/nginx", []report.Pair{{Case: c, Candidate: ours, OfCase: c, OfCandidate: peer}}, ">=", 0.5)
		r.Compare(c+"/net-http", []report.Pair{{Case: c, Candidate: ours, OfCase: c, OfCandidate: library}}, "", 0)
	}
	r.Compare("own-GET/304,processor", []report.Pair{{Case: whole, Candidate: ours + ", CPU", OfCase: unchanged, OfCandidate: ours + ", CPU"}}, ">=", 3)
	r.Compare("own-GET/304,bytes", []report.Pair{{Case: whole, Candidate: ours + ", bytes", OfCase: unchanged, OfCandidate: ours + ", bytes"}}, ">=", 400)
	return nil
}

func (b *bench) round(ctx context.Context, c candidate) error {
	tag, err := etag(ctx, c.base+c.path)
	if err != nil {
		return err
	}
	for _, w := range []struct {
		name, method string
		header       map[string]string
		status       int
	}{
		{heads, http.MethodHead, nil, http.StatusOK},
		{unchanged, http.MethodGet, map[string]string{"If-None-Match": tag}, http.StatusNotModified},
		{whole, http.MethodGet, nil, http.StatusOK},
	} {
		load := web.Load{Method: w.method, Base: c.base, Paths: []string{c.path}, Header: w.header, Want: w.status, Connections: connections,
			During: b.during, PID: c.pid, Cores: web.ClientCores}
		o, err := load.Run(ctx, b.lab)
		if err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
		n, err := bytesOf(c.base, c.path, w.method, w.header)
		if err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
		b.report.Add(w.name, c.name, "/s", o.PerSecond())
		b.report.Add(w.name, c.name+", CPU", "µs", float64(o.CPU)/float64(time.Microsecond))
		b.report.Add(w.name, c.name+", bytes", "B", float64(n))
	}
	return nil
}

func etag(ctx context.Context, url string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodHead, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	if resp.Header.Get("Etag") == "" {
		return "", fmt.Errorf("%s has no ETag: %s", url, resp.Status)
	}
	return resp.Header.Get("Etag"), nil
}

// bytesOf makes one request over a connection of its own, and counts the bytes that come.
func bytesOf(base, path, method string, header map[string]string) (int64, error) {
	address := base[len("http://"):]
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return 0, err
	}
	text := method + " " + path + " HTTP/1.1\r\nHost: " + address + "\r\nUser-Agent: " + web.Agent + "\r\n"
	for k, v := range header {
		text += k + ": " + v + "\r\n"
	}
	if _, err := io.WriteString(conn, text+"\r\n"); err != nil {
		return 0, err
	}
	count := &counter{Reader: conn}
	resp, err := http.ReadResponse(bufio.NewReader(count), &http.Request{Method: method})
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return count.n, err
}

type counter struct {
	io.Reader
	n int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += int64(n)
	return n, err
}
