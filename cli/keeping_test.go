// SPDX-License-Identifier: Apache-2.0

//go:build linux

package cli

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/stream"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// TestRetractFromSenderToReader: what a sender has a receipt for, a real gateway archives and a real feed server gives out, until it is
// retracted.
func TestRetractFromSenderToReader(t *testing.T) {
	minio, nats := testenv.SharedMinIO(t, testenv.MinIOOptions{}), testenv.NATS(t, testenv.NATSOptions{Domain: "hub"})
	bucket := testenv.BucketName()
	testenv.CreateSite(t, nats.JetStream(t), "hub")
	store := minio.Bucket(t, bucket)
	port := testenv.FreePort(t)
	camera := testenv.InstrumentTCP("camera", port)
	camera.Access = &wire.AccessEntry{Live: wire.AccessPublic, Archive: wire.AccessPublic}
	testenv.StartGateway(t, testenv.GatewayOptions{Site: "hub", NATS: nats, MinIO: minio, Bucket: bucket,
		Instruments: []wire.InstrumentEntry{camera}})
	testenv.StartArchivist(t, testenv.ArchivistOptions{Site: "hub", NATS: nats, MinIO: minio, Bucket: bucket})
	secrets := testenv.CredentialsDir(t, minio.Root())
	at := []string{"--s3-endpoint", minio.URL(), "--s3-bucket", bucket, "--s3-credentials-dir", secrets}
	feeds := testenv.StartFeedServer(t, testenv.FeedServerOptions{Site: "hub", NATS: nats, Flags: at})
	at = append(at, "--code", "hub", "--nats-servers", nats.URL())
	archive := func(args ...string) string {
		t.Helper()
		out, stderr, code := runProgram(t, "substorm", append(append([]string{"archive"}, args...), at...)...)
		if code != 0 {
			t.Fatalf("archive %v: exit code %d\n%s", args, code, stderr)
		}
		return out
	}

	file := filepath.Join(t.TempDir(), "frame")
	if err := os.WriteFile(file, []byte("a frame with somebody in it"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, stderr, code := runProgram(t, "substorm", "send", "--quiet", "--to", testenv.Loopback(port), file); code != 0 {
		t.Fatalf("exit code %d\n%s", code, stderr)
	}
	var n wire.Notice
	waitFor(t, func() error {
		all := jsonLines[wire.Notice](t, archive("ls", "-o", "json"))
		if len(all) != 1 {
			return fmt.Errorf("%d objects are listed", len(all))
		}
		n = all[0]
		return nil
	})
	url := "http://" + feeds.Address() + "/archive/camera/" + n.Published()
	answers := func(status int, says string) {
		t.Helper()
		waitFor(t, func() error {
			answer, err := http.Get(url)
			if err != nil {
				return err
			}
			defer answer.Body.Close()
			body, err := io.ReadAll(answer.Body)
			if err == nil && (answer.StatusCode != status || !strings.Contains(string(body), says)) {
				err = fmt.Errorf("%s: %d %s, want %d %s", url, answer.StatusCode, body, status, says)
			}
			return err
		})
	}
	answers(200, "somebody in it")
	archive("retract", "camera", n.Published(), "--reason", "somebody is in it")
	answers(410, "was retracted at")
	archive("restore", "camera", n.Digest.String()[:12], "--reason", "she agreed")
	answers(200, "somebody in it")
	archive("purge", "camera", n.Published(), "--reason", "she changed her mind", "--yes")
	answers(410, "she changed her mind")
	for info, err := range store.List(t.Context(), wire.SitePrefix("hub"), "") {
		if err != nil {
			t.Fatal(err)
		}
		t.Errorf("%s is left in the bucket", info.Key)
	}
	if _, stderr, code := runProgram(t, "substorm", append([]string{"archive", "cat", n.Key}, at...)...); code == 0 {
		t.Errorf("what was purged is written out:\n%s", stderr)
	}
}

// TestRefusedPurgeIsToldToNobody: an object that was imported in place is not purged. The
// command says so, with the reason, and no reader and no subscriber learns of a deletion
// that never was.
func TestRefusedPurgeIsToldToNobody(t *testing.T) {
	minio, nats := testenv.SharedMinIO(t, testenv.MinIOOptions{}), testenv.NATS(t, testenv.NATSOptions{Domain: "hub"})
	bucket := testenv.BucketName()
	js := nats.JetStream(t)
	testenv.CreateSite(t, js, "hub")
	store := minio.Bucket(t, bucket)
	camera := testenv.InstrumentTCP("camera", testenv.FreePort(t))
	camera.Access = &wire.AccessEntry{Live: wire.AccessPublic, Archive: wire.AccessPublic}
	testenv.StartGateway(t, testenv.GatewayOptions{Site: "hub", NATS: nats, MinIO: minio, Bucket: bucket,
		Instruments: []wire.InstrumentEntry{camera}})
	testenv.StartArchivist(t, testenv.ArchivistOptions{Site: "hub", NATS: nats, MinIO: minio, Bucket: bucket})
	camera.Gateway = "north"
	nats.Declare(t, "hub", testenv.Registry{Revision: 2, Instruments: []wire.InstrumentEntry{camera},
		Feeds: []wire.FeedEntry{{UID: "all", Feed: "all", Notices: wire.NoticeStream("hub"), Instruments: []string{"camera"}}}})
	secrets := testenv.CredentialsDir(t, minio.Root())
	at := []string{"--s3-endpoint", minio.URL(), "--s3-bucket", bucket, "--s3-credentials-dir", secrets}
	feeds := testenv.StartFeedServer(t, testenv.FeedServerOptions{Site: "hub", NATS: nats, Flags: append([]string{"--base-url", "http://archive.example.org"}, at...)})
	at = append(at, "--code", "hub", "--nats-servers", nats.URL())

	imported := inPlace(t, js, store, "old tree/frame.jpg", "a frame of long ago")
	url := "http://" + feeds.Address() + "/archive/camera/frame.jpg"
	answer := func() int {
		t.Helper()
		a, err := http.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		_ = a.Body.Close()
		return a.StatusCode
	}
	waitFor(t, func() error {
		if status := answer(); status != http.StatusOK {
			return fmt.Errorf("%s: %d", url, status)
		}
		out, stderr, code := runProgram(t, "substorm", append([]string{"archive", "ls", "-o", "json"}, at...)...)
		if all := jsonLines[wire.Notice](t, out); code != 0 || len(all) != 1 {
			return fmt.Errorf("%d objects are listed: %s", len(all), stderr)
		}
		return nil
	})
	told := notifications(t, "http://"+feeds.Address()+"/wis2/all/events")

	out, stderr, code := runProgram(t, "substorm", append([]string{"archive", "purge", "camera", "frame.jpg", "--reason", "private", "--yes", "--wait", "30s"}, at...)...)
	if code == 0 || !strings.Contains(stderr, "Foreign") || !strings.Contains(stderr, "imported in place") {
		t.Errorf("the refusal is not told: exit code %d\n%s%s", code, out, stderr)
	}
	if status := answer(); status != http.StatusOK {
		t.Errorf("after a refused purge: %d, want 200", status)
	}
	inPlace(t, js, store, "old tree/next.jpg", "the next frame")
	waitFor(t, func() error {
		select {
		case line := <-told:
			if strings.Contains(line, `"rel":"deletion"`) {
				t.Errorf("subscribers are told of a deletion: %s", line)
			}
			if strings.Contains(line, "next.jpg") {
				return nil
			}
			return fmt.Errorf("the last that came is %q", line)
		default:
			return errors.New("what is announced next has not come")
		}
	})
	notices, err := js.Stream(t.Context(), wire.NoticeStream("hub"))
	if err != nil {
		t.Fatal(err)
	}
	for seq := uint64(1); seq <= notices.CachedInfo().State.LastSeq; seq++ {
		m, err := notices.GetMsg(t.Context(), seq)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := wire.Decode[wire.Notice](m.Data); err == nil && m.Subject == wire.NoticeSubject("hub", "camera") && n.State == wire.StatePurged {
			t.Errorf("notice %d says that %s is purged", seq, n.ID)
		}
	}
	if _, err := store.Head(t.Context(), imported); err != nil {
		t.Errorf("the imported file: %v", err)
	}
}

// inPlace puts a file where it is, and announces it as an import does.
func inPlace(t *testing.T, js jetstream.JetStream, store objectstore.Store, key, text string) string {
	t.Helper()
	digest := wire.Digest(sha256.Sum256([]byte(text)))
	if err := store.Put(t.Context(), key, strings.NewReader(text), int64(len(text)), objectstore.PutOptions{Digest: digest, ContentType: "image/jpeg"}); err != nil {
		t.Fatal(err)
	}
	m, err := stream.NoticeMessage(wire.Notice{Site: "hub", Instrument: "camera", Record: wire.Record{
		ID: key, Key: key, Name: filepath.Base(key), Size: int64(len(text)), Digest: digest, MediaType: "image/jpeg", State: wire.StateCurrent,
		ReceivedAt: time.Now().UTC(), TimeSource: wire.TimeSourceReceived, Gateway: wire.ImportWriter, Incarnation: "run"}}, wire.ImportWriter)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.PublishMsg(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	return key
}

// notifications are the lines of an event stream.
func notifications(t *testing.T, url string) <-chan string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("%s: %v, %v", url, answer, err)
	}
	lines := make(chan string, 1000)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(answer.Body); s.Scan(); {
			lines <- s.Text()
		}
	}()
	t.Cleanup(func() {
		cancel()
		_ = answer.Body.Close()
	})
	return lines
}
