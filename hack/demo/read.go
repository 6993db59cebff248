// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/csv"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/substorm/substorm/cli/kube"
	"github.com/substorm/substorm/internal/wire"
)

// The Service of the feed servers, and the dataset that docs/samples declare.
const (
	feedServers = "demo-feed-server"
	dataset     = "magnetometer/seconds"
)

// site is the way to the feed servers from here.
type site struct {
	*demo
	base string
}

// lookOverHTTP reads what was sent as an anonymous reader: it presents no token.
func (d *demo) lookOverHTTP(ctx context.Context, s sent) error {
	cluster, err := kube.Open(kube.Flags{Kubeconfig: d.kubeconfig, Namespace: namespace})
	if err != nil {
		return err
	}
	local, end, err := cluster.Reachable(ctx, feedServers+"."+namespace+".svc:80")
	if err != nil {
		return err
	}
	defer end()
	w := site{d, "http://" + local}
	for _, read := range []func(context.Context, sent) error{w.readFrames, w.readLatest, w.readBundle, w.readAtom, w.readSamples, w.mirror, w.pull, w.partner, w.retract} {
		if err := read(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// get asks for a path, and says what the answer was.
func (w site) get(ctx context.Context, path string, want int, headers ...string) (http.Header, []byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, w.base+path, nil)
	if err != nil {
		return nil, nil, err
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, nil, fmt.Errorf("GET %s: %w", path, err)
	}
	w.p.Line("GET %s: %s, %d bytes", path, resp.Status, len(body))
	if resp.StatusCode != want {
		return nil, nil, fmt.Errorf("GET %s: %s, not %d: %.300s", path, resp.Status, want, body)
	}
	return resp.Header, body, nil
}

// readFrames fetches each frame under its published path, compares its bytes, and
// asks again whether it changed.
func (w site) readFrames(ctx context.Context, s sent) error {
	listed, err := w.list(ctx)
	if err != nil {
		return err
	}
	for digest := range s.frames {
		record := listed.objects[digest].Record
		path := (&url.URL{Path: "/archive/" + camera + "/" + record.Published()}).EscapedPath()
		header, body, err := w.get(ctx, path, http.StatusOK)
		if err != nil {
			return err
		}
		if got := wire.Digest(sha256.Sum256(body)); got != digest {
			return fmt.Errorf("%s has SHA-256 %s, %s was sent", path, got, digest)
		}
		// A query such as live pages add to defeat caches changes nothing.
		if _, _, err := w.get(ctx, path+fmt.Sprintf("?nocache=%d", time.Now().UnixNano()), http.StatusNotModified, "If-None-Match", header.Get("ETag")); err != nil {
			return err
		}
	}
	return nil
}

// readLatest fetches the newest frame.
func (w site) readLatest(ctx context.Context, s sent) error {
	_, body, err := w.get(ctx, "/latest/"+camera, http.StatusOK)
	if err != nil {
		return err
	}
	if _, ok := s.frames[sha256.Sum256(body)]; !ok {
		return fmt.Errorf("the latest frame has SHA-256 %x, which was not sent", sha256.Sum256(body))
	}
	return nil
}

// readSamples fetches what the lines say of the times that they tell, and shows the first.
func (w site) readSamples(ctx context.Context, s sent) error {
	query := url.Values{"dataset": {dataset}, "start": {s.from.Format(time.RFC3339)}, "stop": {s.to.Format(time.RFC3339)}}
	_, body, err := w.get(ctx, "/hapi/data?"+query.Encode(), http.StatusOK)
	if err != nil {
		return err
	}
	rows, err := csv.NewReader(bytes.NewReader(body)).ReadAll()
	if err != nil {
		return fmt.Errorf("data of %s: %w", dataset, err)
	}
	if len(rows) != s.samples {
		return fmt.Errorf("%s has %d samples of those seconds, %d were sent", dataset, len(rows), s.samples)
	}
	first, _ := bufio.NewReader(bytes.NewReader(body)).ReadString('\n')
	w.p.Line("%d samples of %s, as many as were sent; the first: %s", len(rows), dataset, strings.TrimSpace(first))
	return nil
}
