// SPDX-License-Identifier: Apache-2.0

//go:build linux

package cli

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/substorm/substorm/e2e/parts"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
)

// TestTakeBackFromSenderToReader: what a sender has a receipt for, a real gateway
// archives and a real feed server gives out, until somebody takes it back.
func TestTakeBackFromSenderToReader(t *testing.T) {
	minio, nats := parts.MinIO(t, parts.MinIOOptions{}), parts.NATS(t, parts.NATSOptions{Domain: "hub"})
	parts.CreateSite(t, nats.JetStream(t), "hub")
	store := minio.Bucket(t, "archive")
	port := parts.FreePort(t)
	camera := parts.InstrumentTCP("camera", port)
	camera.Access = &wire.AccessEntry{Live: wire.AccessPublic, Archive: wire.AccessPublic}
	parts.StartGateway(t, parts.GatewayOptions{Site: "hub", NATS: nats, MinIO: minio, Bucket: "archive", Flags: []string{"--part-interval", "500ms"},
		Instruments: []wire.InstrumentEntry{camera}})
	secrets := t.TempDir()
	for name, text := range map[string]string{objectstore.FileAccessKeyID: minio.AccessKeyID, objectstore.FileSecretAccessKey: minio.SecretAccessKey} {
		if err := os.WriteFile(filepath.Join(secrets, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	at := []string{"--s3-endpoint", minio.URL(), "--s3-bucket", "archive", "--s3-credentials-dir", secrets}
	feeds := parts.StartFeedServer(t, parts.FeedServerOptions{Site: "hub", NATS: nats, Flags: at})
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
	if _, stderr, code := runProgram(t, "substorm", "send", "--quiet", "--to", parts.Loopback(port), file); code != 0 {
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
