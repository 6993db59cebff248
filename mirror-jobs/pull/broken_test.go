// SPDX-License-Identifier: Apache-2.0

package pull_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/substorm/substorm/feed-server/archive/archivetest"
	"github.com/substorm/substorm/internal/mirrorindex"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/folder"
	"github.com/substorm/substorm/mirror-jobs/pull"
)

// cutting passes TCP on to a server, and cuts each connection once some bytes came back. All of them arrive: a reset drops what still
// waits to be sent, which may be everything if the client reads slowly, and then no attempt would make progress.
func cutting(t *testing.T, target string, after func() int64) (url string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			in, err := listener.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", strings.TrimPrefix(target, "http://"))
			if err != nil {
				_ = in.Close()
				continue
			}
			go func() { _, _ = io.Copy(out, in) }()
			go func() {
				_, _ = io.CopyN(in, out, after())
				for range testenv.Attempts() {
					if waiting(in.(*net.TCPConn)) == 0 || t.Context().Err() != nil {
						break
					}
				}
				_ = in.(*net.TCPConn).SetLinger(0)
				_, _ = in.Close(), out.Close()
			}()
		}
	}()
	return "http://" + listener.Addr().String()
}

// waiting is how many bytes the other side has not taken yet; 0 of a connection that is closed.
func waiting(c *net.TCPConn) (bytes int) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0
	}
	asked := raw.Control(func(fd uintptr) { bytes, err = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) })
	if asked != nil || err != nil {
		return 0
	}
	return bytes
}

// fill puts many small objects and a large one.
func (l *lab) fill() map[string]string {
	want := map[string]string{}
	var last wire.Record
	for i := range 200 {
		name, body := fmt.Sprintf("%d/%d æ.bin", i%5, i), strings.Repeat(fmt.Sprint(i), 500)
		last = l.Put(archivetest.Camera, name, body, at(storm.Add(time.Duration(i)*time.Hour)))
		want["allsky-1/"+name] = body
	}
	large := make([]byte, 40<<20)
	for i := 0; i < len(large); i += 8 {
		copy(large[i:], fmt.Sprint(rand.Uint32()))
	}
	l.Put(archivetest.Camera, "large.fits", string(large), at(storm))
	want["allsky-1/large.fits"] = string(large)
	l.Wait(last)
	l.Until("all is known", func() bool { return strings.Contains(l.listOf("2015-03-17"), "large.fits") })
	return want
}

// A run that is interrupted ten times, and whose links break, ends with the same bytes, and no
// file is there under its name before it is whole.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	want := l.fill()
	address := cutting(t, l.URL, func() int64 { return 1<<20 + rand.N(int64(12<<20)) })
	for i := range 10 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i+1)*30*time.Millisecond)
		err := l.from(ctx, address)
		cancel()
		if err == nil {
			t.Logf("run %d was done before it was interrupted", i)
		}
		l.partOf(want)
	}
	if err := l.from(t.Context(), address); err != nil {
		t.Fatal(err)
	}
	l.want("in the end", want)
	if asked := l.pull(); len(asked) != 1 {
		t.Errorf("nothing is left: %q", asked)
	}
}

// partOf fails where a file is there that is not whole.
func (l *lab) partOf(want map[string]string) {
	l.Helper()
	for path, body := range want {
		if data, err := os.ReadFile(filepath.Join(l.dir, path)); err == nil && string(data) != body {
			l.Fatalf("%s has %d bytes, and other ones", path, len(data))
		}
	}
}

// After a kill, what the run could not note is found again, and not fetched again.
func TestKilled(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	want := l.fill()
	l.pull()
	// As if it was killed before it wrote its lists.
	for _, path := range []string{".substorm/allsky-1", ".substorm/state.json"} {
		if err := os.RemoveAll(filepath.Join(l.dir, path)); err != nil {
			t.Fatal(err)
		}
	}
	for path, text := range map[string]string{".substorm/running": "", "allsky-1/0/.substorm-7": "half a file"} {
		if err := os.WriteFile(filepath.Join(l.dir, path), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// A file gets its time before its name, so one that a power cut left without its bytes has the time of the object.
	half := filepath.Join(l.dir, "allsky-1/large.fits")
	if err := errors.Join(os.WriteFile(half, []byte("half"), 0o600), os.Chtimes(half, storm, storm)); err != nil {
		t.Fatal(err)
	}
	l.pull()
	l.want("again", want)
	if l.last.Objects != 1 {
		t.Errorf("fetched again: %+v", l.last)
	}
	// A list that a power failure made empty, and one that is none.
	list := filepath.Join(l.dir, ".substorm/allsky-1/2015-03-17.jsonl.zst")
	for _, text := range []string{"", "no list"} {
		if err := os.WriteFile(list, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		l.force = true
		l.pull()
		l.want("after a damaged list", want)
	}
}

// lying passes questions on, and changes answers.
func lying(t *testing.T, target string, change func(path string, body []byte) []byte) string {
	t.Helper()
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(u)
		r.Out.Header.Set("Accept-Encoding", "identity")
	}}
	proxy.ModifyResponse = func(answer *http.Response) error {
		body, err := io.ReadAll(answer.Body)
		if err != nil {
			return err
		}
		body = change(answer.Request.URL.Path, body)
		answer.Body, answer.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		answer.Header.Set("Content-Length", fmt.Sprint(len(body)))
		return nil
	}
	server := httptest.NewServer(proxy)
	t.Cleanup(server.Close)
	return server.URL
}

// An object that differs from what the list says gets no name here, and the rest is mirrored.
func TestLiar(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.Put(archivetest.Camera, "a.jpg", "first", at(storm))
	l.Put(archivetest.Camera, "b.jpg", "second", at(storm))
	l.Put(archivetest.Camera, "large.fits", strings.Repeat("large", 4<<20), at(storm))
	l.Wait(l.Put(archivetest.Camera, "c.jpg", "third", at(storm)))
	var honest atomic.Bool
	address := lying(t, l.URL, func(path string, body []byte) []byte {
		if honest.Load() {
			return body
		}
		body = bytes.Replace(body, []byte("second"), []byte("SECOND"), 1)
		return bytes.Replace(body, []byte("largelarge"), []byte("largeLARGE"), 1)
	})
	if err := l.from(t.Context(), address); !errors.Is(err, pull.ErrLeft) || l.last.Failed != 2 {
		t.Errorf("%v, %+v", err, l.last)
	}
	l.want("what is right", map[string]string{"allsky-1/a.jpg": "first", "allsky-1/c.jpg": "third"})
	honest.Store(true)
	if err := l.from(t.Context(), address); err != nil {
		t.Error(err)
	}
	l.want("all", map[string]string{"allsky-1/a.jpg": "first", "allsky-1/b.jpg": "second", "allsky-1/c.jpg": "third", "allsky-1/large.fits": strings.Repeat("large", 4<<20)})
}

// Names that leave the folder, or that no file may have, are refused one by one.
func TestNamesThatEscape(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.Put(archivetest.Camera, "good.jpg", "good", at(storm))
	l.Wait(l.Put(archivetest.Camera, "evil.jpg", "evil", at(storm)))
	for _, path := range []string{"../../evil.jpg", "/etc/evil", "good.jpg/evil.jpg"} {
		address := lying(t, l.URL, func(at string, body []byte) []byte {
			return bytes.ReplaceAll(body, []byte(`"path":"evil.jpg"`), fmt.Appendf(nil, `"path":%q`, path))
		})
		l.dir = t.TempDir()
		if err := l.from(t.Context(), address); !errors.Is(err, pull.ErrLeft) {
			t.Errorf("%q: %v", path, err)
		}
		l.want(path, map[string]string{"allsky-1/good.jpg": "good"})
	}
	// The tree has a link that leads out of it.
	outside := t.TempDir()
	l.dir = t.TempDir()
	if err := os.Symlink(outside, filepath.Join(l.dir, "allsky-1")); err != nil {
		t.Fatal(err)
	}
	if err := l.from(t.Context(), l.URL); err == nil {
		t.Error("a link out of the folder is followed")
	}
	if left, err := os.ReadDir(outside); err != nil || len(left) > 0 {
		t.Errorf("outside there is %v %v", left, err)
	}
}

// Entries that no object can have end the run before anything is made of them.
func TestImpossibleEntries(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.Wait(l.Put(archivetest.Camera, "a.jpg", "first", at(storm)))
	for _, c := range []struct{ field, with, says string }{
		{`"size":5`, `"size":1125899906842624`, "has 1125899906842624 bytes"},
		{`"size":5`, `"size":-5`, "has -5 bytes"},
		{`"id":"`, `"id":"","was":"`, "has no ID"},
	} {
		asked := 0
		address := lying(t, l.URL, func(path string, body []byte) []byte {
			if path != mirrorindex.ListsPath {
				return body
			}
			asked++
			return bytes.Replace(body, []byte(c.field), []byte(c.with), 1)
		})
		l.dir = t.TempDir()
		if err := l.from(t.Context(), address); err == nil || !strings.Contains(err.Error(), c.says) || asked != 1 {
			t.Errorf("%s: after %d tries: %v", c.with, asked, err)
		}
	}
}

// An object that was received at a time at which none is is left where it is, and counted. All others come.
func TestImpossibleTime(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.Put(archivetest.Camera, "a.jpg", "first", at(storm))
	l.Wait(l.Put(archivetest.Camera, "b.jpg", "second", at(storm.Add(time.Second))))
	for _, year := range []string{"1015", "2300"} {
		address := lying(t, l.URL, func(path string, body []byte) []byte {
			if path != mirrorindex.ListsPath {
				return body
			}
			return bytes.Replace(body, []byte(`"receivedAt":"2015`), []byte(`"receivedAt":"`+year), 1)
		})
		l.dir = t.TempDir()
		if err := l.from(t.Context(), address); err == nil {
			t.Errorf("%s: nothing is said", year)
		}
		if n := len(l.files()); n != 1 {
			t.Errorf("%s: %d files came, and not the other one", year, n)
		}
	}
}

// An instrument that the other side closes between the question for its months and that for the days of one has not expired there:
// nothing of it goes here, and it is asked for again.
func TestClosedBetween(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	l.Put(archivetest.Camera, "1.jpg", "one", at(storm))
	l.Wait(l.Put(archivetest.Camera, "2.jpg", "two", at(storm)))
	l.pull()
	l.Wait(l.Put(archivetest.Camera, "3.jpg", "three", at(storm)))
	camera := l.Snapshot().Instruments[archivetest.Camera]
	closed := camera
	closed.Access = archivetest.Restricted
	var once sync.Once
	address := lying(t, l.URL, func(path string, body []byte) []byte {
		if path == mirrorindex.DaysPath {
			once.Do(func() { l.Declare(closed) })
		}
		return body
	})
	want := map[string]string{"allsky-1/1.jpg": "one", "allsky-1/2.jpg": "two"}
	if err := l.from(t.Context(), address); err != nil {
		t.Error(err)
	}
	l.want("it is closed meanwhile", want)
	l.Declare(camera)
	want["allsky-1/3.jpg"] = "three"
	l.pull()
	l.want("it may be read again", want)
}

// Parts of a large object that is retracted before all of them came are removed.
func TestVanishedParts(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	large := l.Put(archivetest.Camera, "large.fits", strings.Repeat("0123456789abcdef", 40<<20/16), at(storm))
	l.Wait(large)
	var given atomic.Int64
	address := lying(t, l.URL, func(path string, body []byte) []byte {
		if len(body) == folder.PartSize && given.Add(1) > 2 {
			return body[:100]
		}
		return body
	})
	parts := filepath.Join(l.dir, ".substorm/parts")
	if err := l.from(t.Context(), address); err == nil {
		t.Fatal("a large object of which parts are missing is mirrored")
	}
	if left, err := os.ReadDir(parts); err != nil || len(left) != 2 {
		t.Fatalf("of the large object there is %v, %v", left, err)
	}
	large.State, large.Reason = wire.StateRetracted, "a lamp"
	l.Announce(archivetest.Camera, large)
	l.Until("it is retracted", func() bool { return strings.Contains(l.listOf("2015-03-17"), "State:Retracted") })
	l.pull()
	if left, err := os.ReadDir(parts); err != nil || len(left) != 0 {
		t.Errorf("of an object that nobody can have any more there is %v, %v", left, err)
	}
}

// Answers that are none: the error says what is wrong, and whom to ask.
func TestNoMirrorIndex(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status int
		body   string
		says   string
	}{
		{200, "<html>", "is not the mirror index of a Substorm"},
		{200, `{"format":7,"site":"a"}`, "upgrade the older of the two"},
		{200, `{"format":1,"site":"../a"}`, "is not a DNS label"},
		{200, `{"format":1,"site":"a","instruments":[{"instrument":".ssh","tag":"1"}]}`, `instrument ".ssh" is not a DNS label`},
		{404, "", "404 Not Found"},
		{401, "", "show a reader's token"},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(c.status)
			_, _ = io.WriteString(w, c.body)
		}))
		l := &lab{Lab: &archivetest.Lab{TB: t}, dir: t.TempDir()}
		if err := l.from(t.Context(), server.URL); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%d %s: %v", c.status, c.body, err)
		}
		server.Close()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	l := &lab{Lab: &archivetest.Lab{TB: t}, dir: t.TempDir()}
	if err := l.from(ctx, "http://127.0.0.1:1"); err == nil {
		t.Error("nobody listens there")
	}
}
