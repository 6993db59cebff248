// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/substorm/substorm/feed-server/wis2"
	"github.com/substorm/substorm/internal/retry"
	"github.com/substorm/substorm/internal/wire"
)

const (
	// feed is the Feed of docs/samples/feeds/everything.yaml, consumer one that follows it.
	feed, consumer = "everything", "browser"
)

// retract retracts a frame and gives it back, and sees what readers and those who are notified see.
func (w site) retract(ctx context.Context, s sent) error {
	listed, err := w.list(ctx)
	if err != nil {
		return err
	}
	digest := slices.SortedFunc(maps.Keys(s.frames), func(a, b wire.Digest) int { return strings.Compare(a.String(), b.String()) })[0]
	record := listed.objects[digest].Record
	path := (&url.URL{Path: "/archive/" + camera + "/" + record.Published()}).EscapedPath()

	following, cancel := context.WithCancel(ctx)
	defer cancel()
	events, err := w.notifications(following)
	if err != nil {
		return err
	}
	defer events.Close()
	if err := w.show(ctx, w.substorm, "archive", "retract", camera, digest.String(), "--reason", "a lamp was on"); err != nil {
		return err
	}
	late := time.AfterFunc(patience, cancel) // ends what is followed
	if err := w.awaitNotification(events, path, "deletion"); err != nil {
		return err
	}
	late.Stop()
	if err := w.awaitStatus(ctx, path, http.StatusGone); err != nil {
		return err
	}
	if err := w.show(ctx, w.substorm, "archive", "restore", camera, digest.String(), "--reason", "it was the moon", "--wait", "0"); err != nil {
		return err
	}
	if err := w.awaitStatus(ctx, path, http.StatusOK); err != nil {
		return err
	}
	for _, argv := range [][]string{
		{w.substorm, "archive", "inspect", digest.String()[:16]},
		{w.substorm, "archive", "gaps"},
		{w.substorm, "archive", "report", "--day", "today"},
	} {
		if err := w.show(ctx, argv...); err != nil {
			return err
		}
	}
	return nil
}

// notifications are the WIS2 messages of what changes from now on. Live messages are not for everybody unless an Instrument
// says so: the consumer shows its token as the password.
func (w site) notifications(ctx context.Context) (io.ReadCloser, error) {
	path := "/wis2/" + feed + "/events"
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, w.base+path, nil)
	if err != nil {
		return nil, err
	}
	token, err := w.output(ctx, w.kubectl, "-n", namespace, "get", "secret", consumer+"-consumer", "-o", "go-template={{.data.token | base64decode}}")
	if err != nil {
		return nil, err
	}
	r.SetBasicAuth(consumer, token)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	w.p.Line("GET %s, user %s with its token: %s", path, consumer, resp.Status)
	if resp.StatusCode != http.StatusOK {
		_ = resp.Body.Close()
		return nil, fmt.Errorf("GET %s: %s", path, resp.Status)
	}
	return resp.Body, nil
}

// awaitNotification reads events until one says of an object what it has become.
func (w site) awaitNotification(events io.Reader, path, rel string) error {
	lines := bufio.NewScanner(events)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data:")
		var m wis2.Message
		if !ok || json.Unmarshal([]byte(data), &m) != nil || len(m.Links) == 0 {
			continue
		}
		if link := m.Links[0]; link.Rel == rel && strings.HasSuffix(link.Href, path) {
			w.p.Line("WIS2 notification: %s of %s", rel, m.Properties.DataID)
			return nil
		}
	}
	return errors.Join(fmt.Errorf("no WIS2 notification announced the %s of %s", rel, path), lines.Err())
}

// awaitStatus asks until an object is answered as it should be.
func (w site) awaitStatus(ctx context.Context, path string, want int) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		_, _, err := w.get(ctx, path, want)
		if err == nil {
			return nil
		}
		if !retry.Sleep(ctx, time.Second) {
			return err
		}
	}
}
