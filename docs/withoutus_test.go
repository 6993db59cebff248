// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/manifest"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/sender"
)

const (
	siteCode     = "demo"
	bucket       = "substorm"
	camera       = "allsky-camera"
	magnetometer = "magnetometer"
)

var shellBlock = regexp.MustCompile("(?sm)^```sh\n(.*?)^```")

// script returns the shell blocks of a page as one program.
func script(t *testing.T, page string) string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	out := "set -euo pipefail\n"
	for _, m := range shellBlock.FindAllSubmatch(text, -1) {
		out += string(m[1])
	}
	return out
}

// observations are what the two instruments send: real ones from the folder
// beside the project, or generated ones of the same shape.
func observations(t *testing.T) (frames []string, lines []string) {
	t.Helper()
	frames, _ = filepath.Glob("../../shared/data/allsky/*.pgm.gz")
	series, err := os.ReadFile("../../shared/data/magnetometer/BOU20200101vsec.sec")
	if len(frames) > 0 && err == nil {
		_, values, _ := strings.Cut(string(series), "BOUF   |\n")
		return frames, strings.Split(strings.TrimSpace(values), "\n")
	}
	t.Log("no real data beside the project: generated frames and values")
	for i := range 3 {
		frame := filepath.Join(t.TempDir(), fmt.Sprintf("frame-%d.pgm", i))
		if err := os.WriteFile(frame, fmt.Appendf(nil, "P5 256 256 255\n%s", bytes.Repeat([]byte{byte(i)}, 65_536)), 0o600); err != nil {
			t.Fatal(err)
		}
		frames = append(frames, frame)
	}
	for i := range 900 {
		lines = append(lines, fmt.Sprintf("2020-01-01 00:%02d:%02d.000 001     20826.%02d    -86.75  46874.62  51815.05", i/60, i%60, i%100))
	}
	return frames, lines
}

// TestWithoutUs: what a real gateway archived is read back with the tools and
// the very lines that without-us.md names.
func TestWithoutUs(t *testing.T) {
	for _, tool := range []string{"bash", "rclone", "zstd", "jq", "tshark", "curl", "perl", "gzip", "sha256sum"} {
		if _, err := exec.LookPath(tool); err != nil {
			if os.Getenv("CI") != "" {
				t.Fatalf("%s is not installed, and CI must run this test: see hack/needs.sh", tool)
			}
			t.Skipf("%s is not installed (apt-get install rclone zstd jq tshark curl perl)", tool)
		}
	}
	if now := time.Now(); now.Truncate(time.Hour) != now.Add(time.Minute).Truncate(time.Hour) {
		t.Log("waiting for the next hour to begin: what is sent must lie in one")
		time.Sleep(time.Until(now.Truncate(time.Hour).Add(time.Hour)))
	}
	minio, nats := testenv.MinIO(t, testenv.MinIOOptions{}), testenv.NATS(t, testenv.NATSOptions{})
	testenv.CreateSite(t, nats.JetStream(t), siteCode)
	store := minio.Bucket(t, bucket)
	tcp, udp := testenv.FreePort(t), testenv.FreePort(t)
	gateway := testenv.StartGateway(t, testenv.GatewayOptions{Site: siteCode, NATS: nats, MinIO: minio, Bucket: bucket,
		Instruments: []wire.InstrumentEntry{testenv.InstrumentTCP(camera, tcp), testenv.InstrumentUDP(magnetometer, udp)}})
	testenv.StartArchivist(t, testenv.ArchivistOptions{Site: siteCode, NATS: nats, MinIO: minio, Bucket: bucket})

	frames, lines := observations(t)
	small := filepath.Join(t.TempDir(), "small.pgm")
	if err := os.WriteFile(small, []byte("P5 2 2 255\nsky."), 0o600); err != nil {
		t.Fatal(err)
	}
	frames = append([]string{small}, frames...)
	at := time.Now().UTC()
	sendAll(t, sender.Config{Addresses: []string{testenv.Loopback(tcp)}, Paths: frames})
	sendAll(t, sender.Config{Addresses: []string{testenv.Loopback(tcp)}, Paths: frames[:1]}) // again: the archive keeps one
	sendAll(t, sender.Config{Addresses: []string{testenv.Loopback(udp)}, UDP: true, Lines: true, Rate: 1000, Paths: []string{"-"}, Stdin: strings.NewReader(strings.Join(lines, "\n"))})
	waitForDatagrams(t, store, gateway, wire.DayOf(at), len(lines))

	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "bash", "-c", script(t, "how-to/without-us.md"))
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), // nothing of this machine's settings for S3 clients and proxies
		"ENDPOINT=" + minio.URL(), "BUCKET=" + bucket, "ACCESS_KEY_ID=" + minio.AccessKeyID, "SECRET_ACCESS_KEY=" + minio.SecretAccessKey,
		"SITE=" + siteCode, "CAMERA=" + camera, "MAGNETOMETER=" + magnetometer, at.Format("DAY=2006-01-02"), at.Format("HOUR=15"), "HOME=" + dir, "TZ=America/St_Johns"}
	out, err := cmd.CombinedOutput()
	t.Logf("without-us.md printed:\n%s", out)
	if err != nil {
		t.Fatalf("without-us.md fails: %v", err)
	}
	compareFrame(t, dir, frames[len(frames)-1])
	hour, err := os.ReadFile(filepath.Join(dir, "hour.txt"))
	if err != nil || strings.TrimSpace(string(hour)) != strings.Join(lines, "\n") {
		t.Errorf("the hour is not what was sent (%v)", err)
	}
	listed, err := os.ReadFile(filepath.Join(dir, "camera.jsonl"))
	if n := strings.Count(string(listed), "\n"); err != nil || n != len(frames) {
		t.Errorf("%d frames listed, %d sent (%v)", n, len(frames), err)
	}
	if got, err := os.ReadFile(filepath.Join(dir, "smallest")); err != nil || string(got) != "P5 2 2 255\nsky." || !strings.Contains(string(listed), `"offset":`) {
		t.Errorf("the smallest frame, which lies in a pack, is %q (%v)", got, err)
	}
	if !strings.Contains(string(out), "smallest: OK") || !strings.Contains(string(out), "frame: OK") || !strings.Contains(string(out), "x-amz-meta-substorm-sha256") {
		t.Error("neither digest nor metadata was shown")
	}
}

func compareFrame(t *testing.T, dir, sent string) {
	t.Helper()
	want, err := os.ReadFile(sent)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(dir, "frame"))
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("the frame is not the one that was sent last (%v)", err)
	}
}

func sendAll(t *testing.T, cfg sender.Config) {
	t.Helper()
	cfg.Quiet, cfg.Messages, cfg.Parallel = true, io.Discard, 1
	cfg.ConnectTimeout, cfg.ReceiptTimeout, cfg.GiveUpAfter = 10*time.Second, testenv.Patience, testenv.Patience
	if err := sender.Run(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
}

// waitForDatagrams waits until the bucket holds segments with so many
// datagrams, stops the gateway, which closes the manifest's open parts, and
// looks whether the manifest lists them.
func waitForDatagrams(t *testing.T, store objectstore.Store, gateway *testenv.Gateway, day wire.Day, want int) {
	t.Helper()
	held := func() (n uint64) {
		for info, err := range store.List(t.Context(), wire.SegmentPrefix(siteCode, magnetometer, "raw", day), "") {
			if err != nil {
				t.Fatal(err)
			}
			object, err := store.Head(t.Context(), info.Key)
			if err != nil {
				t.Fatal(err)
			}
			notice, err := wire.NoticeFromMetadata(info.Key, object.Metadata)
			if err != nil {
				t.Fatal(err)
			}
			n += notice.Segment.Datagrams
		}
		return n
	}
	got := held()
	for range testenv.Attempts() {
		if got == uint64(want) {
			break
		}
		got = held()
	}
	if got != uint64(want) {
		t.Fatalf("segments hold %d datagrams, %d were sent", got, want)
	}
	gateway.Stop()
	listed := uint64(0)
	for r, err := range manifest.Day(t.Context(), store, siteCode, magnetometer, day) {
		if err != nil {
			t.Fatal(err)
		}
		listed += r.Segment.Datagrams
	}
	if listed != uint64(want) {
		t.Fatalf("the manifest lists segments of %d datagrams, want %d", listed, want)
	}
}
