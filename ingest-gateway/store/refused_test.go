// SPDX-License-Identifier: Apache-2.0

package store

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

// refuser is a reverse proxy before a store. It answers writes itself while it refuses
// them, and counts these by key.
type refuser struct {
	mu      sync.Mutex
	answer  func(http.ResponseWriter) // nil: requests pass
	refused map[string]int
}

// refuse puts a refuser between the lab's next incarnations and the store.
func (l *lab) refuse(t *testing.T) *refuser {
	t.Helper()
	to, err := url.Parse(l.minio.URL())
	if err != nil {
		t.Fatal(err)
	}
	r := &refuser{refused: map[string]int{}}
	proxy := &httputil.ReverseProxy{Rewrite: func(p *httputil.ProxyRequest) {
		p.SetURL(to)
		p.Out.Host = p.In.Host // it is signed
	}}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.mu.Lock()
		answer := r.answer
		if answer != nil && (req.Method == http.MethodPut || req.Method == http.MethodPost) {
			r.refused[req.URL.Path]++
			r.mu.Unlock()
			answer(w)
			return
		}
		r.mu.Unlock()
		proxy.ServeHTTP(w, req)
	}))
	t.Cleanup(server.Close)
	cfg := l.minio.Config(l.bucket)
	cfg.Endpoint = server.URL
	if l.cfg.Objects, err = objectstore.Open(cfg); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *refuser) set(answer func(http.ResponseWriter)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer, r.refused = answer, map[string]int{}
}

// writes returns how many were refused.
func (r *refuser) writes() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, times := range r.refused {
		n += times
	}
	return n
}

// s3Error answers as an S3 server does.
func s3Error(status int, code string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(status)
		fmt.Fprintf(w, `<?xml version="1.0" encoding="UTF-8"?><Error><Code>%s</Code><Message>refused</Message></Error>`, code)
	}
}

// page answers as a proxy does that is no S3 server.
func page(status int) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) { http.Error(w, http.StatusText(status), status) }
}

// While the store refuses every write, whatever the answer, nothing from the spool goes
// to quarantine, and all is stored once it takes writes again.
func TestUnstorableNothingWhileAllIsRefused(t *testing.T) {
	t.Parallel()
	answers := map[string]func(http.ResponseWriter){
		"404 of a proxy": page(http.StatusNotFound), "405 of a proxy": page(http.StatusMethodNotAllowed),
		"400 ExpiredToken": s3Error(http.StatusBadRequest, "ExpiredToken"), "400 InvalidRequest": s3Error(http.StatusBadRequest, "InvalidRequest"),
	}
	for name, answer := range answers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, 2*time.Second)
			l.packBelow = packBelow
			r := l.refuse(t)
			v := l.start(t, t.TempDir(), "one", spooledOnly)
			r.set(answer)
			sent := map[wire.Digest]int{}
			for i, size := range []int{1000, 2000, packBelow + 1000, packBelow + 2000} { // in packs, and alone
				sent[v.mustCommit(t, random(byte(i), size)).Digest] = 1
			}
			// A pack, two objects and the members of the pack: were tries counted, all would have been given up.
			await(t, "writes are refused", func() (bool, string) {
				n, st := r.writes(), v.cfg.Spool.Stats()
				return n > 6*unstorableTries || st.Quarantined > 0, fmt.Sprintf("%d, %+v", n, st)
			})
			if st := v.cfg.Spool.Stats(); st.Quarantined != 0 || st.Objects != int64(len(sent)) {
				t.Fatalf("%+v, want %d waiting and none in quarantine", st, len(sent))
			}
			r.set(nil)
			v.awaitEmptySpool(t)
			if st := v.cfg.Spool.Stats(); st.Quarantined != 0 {
				t.Errorf("%+v, want none in quarantine", st)
			}
			if diff := cmp.Diff(sent, l.checkArchive(t)); diff != "" {
				t.Errorf("announced (-sent +announced):\n%s", diff)
			}
		})
	}
}

// An object that the store alone refuses goes to quarantine, although nothing else is
// sent: the store is asked whether it takes anything. The object with which it was asked
// is removed.
func TestUnstorableAlone(t *testing.T) {
	t.Parallel()
	l := newLab(t, 5*time.Second)
	v := l.start(t, t.TempDir(), "one", storedOrSpooled)
	data := random(1, 1000)
	n := wire.Notice{Site: "hub", Instrument: "camera", Record: wire.Record{
		Size: int64(len(data)), Digest: sha256.Sum256(data), State: wire.StateCurrent, MediaType: "image/jpeg",
		Path:       string(bytes.Repeat([]byte("p"), 3000)), // S3 takes 2 KB of metadata
		ReceivedAt: time.Now().UTC(), TimeSource: wire.TimeSourceReceived, Gateway: "north-0", Incarnation: "one",
	}}
	n.Key = wire.RawKey("hub", "camera", n.ReceivedAt, n.Digest)
	n.ID = n.Key
	v.ledger.ObjectBegun("camera", n.ReceivedAt)
	if err := v.countInSpool(n, "", v.cfg.Spool.Copied(n, "", bytes.NewReader(data), n.Size)); err != nil {
		t.Fatal(err)
	}
	v.awaitEmptySpool(t)
	if st := v.cfg.Spool.Stats(); st.Quarantined != 1 {
		t.Errorf("%+v, want one in quarantine", st)
	}
	if keys := l.keys(t, wire.StagingPrefix("hub")); len(keys) > 0 {
		t.Errorf("left in the bucket: %v", keys)
	}
}

// An error of the volume's file system is no refusal of the store, nor is a claim or a
// manifest that cannot be read: the object is not the cause.
func TestUnstorableNotForOthers(t *testing.T) {
	l := newLab(t, 5*time.Second)
	_, err := os.Open(filepath.Join(t.TempDir(), "segment"))
	if !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	for _, err := range []error{err, wire.ErrMalformed, wire.ErrNewerFormat} {
		tried := l.newTries()
		for range 2 * unstorableTries {
			if err := tried.judge(t.Context(), fmt.Errorf("spool record of o/1: %w", err)); errors.Is(err, errUnstorable) {
				t.Error(err)
				break
			}
		}
	}
}
