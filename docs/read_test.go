// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/yuin/goldmark/ast"

	"github.com/substorm/substorm/internal/minioadmin"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/sender"
)

// marked returns the blocks of a page that a test runs, as one program.
func marked(t *testing.T, path, test string) string {
	t.Helper()
	return strings.Join(markedBlocks(t, path, test), "")
}

// markedBlocks returns the blocks of a page that a test runs, in their order.
func markedBlocks(t *testing.T, path, test string) []string {
	t.Helper()
	page, source := parse(t, path)
	var scripts []string
	each(t, page, func(n ast.Node) {
		block, ok := n.(*ast.FencedCodeBlock)
		if !ok {
			return
		}
		if by, _ := mark(block, source); by != test {
			return
		}
		script := string(block.Lines().Value(source))
		if string(block.Language(source)) == "console" {
			script = typed(script) + "\n"
		}
		scripts = append(scripts, script)
	})
	if len(scripts) == 0 {
		t.Fatalf("%s has no block that is run by %s", path, test)
	}
	return scripts
}

// public is the entry of an Instrument that receives over HTTP and that everybody may read.
func public(name string, port int) wire.InstrumentEntry {
	e := testenv.InstrumentTCP(name, port)
	e.Listeners = []wire.ListenerEntry{{Protocol: wire.ProtocolHTTP, Port: uint16(port), IdleTimeoutMillis: 60_000, MaxAgeMillis: 3_600_000, UploadExpiryMillis: 3_600_000}}
	e.Naming, e.Versions, e.MediaType = "{name}", wire.VersionsKeep, "image/jpeg"
	e.Access = &wire.AccessEntry{Live: wire.AccessPublic, Archive: wire.AccessPublic}
	return e
}

// boulder is the Instrument of hapi.md.
func boulder(port int) wire.InstrumentEntry {
	e := testenv.InstrumentUDP("boulder", port)
	e.Access = &wire.AccessEntry{Live: wire.AccessPublic, Archive: wire.AccessPublic}
	fill := "99999.00"
	e.Channels = []wire.ChannelEntry{{Name: "seconds", Datagrams: "raw", CadenceMillis: 1000,
		Payload:    wire.PayloadEntry{Type: wire.PayloadIAGA2002, Reported: "HEZF"},
		Time:       wire.ChannelTimeEntry{Source: wire.TimePayload, Precision: "Milliseconds", Location: "center", MaxDelayMillis: 3_600_000},
		Parameters: []wire.ParameterEntry{{Name: "field", Type: wire.ParameterDouble, Units: "nT", Size: []int{3}, Components: []string{"H", "E", "Z"}, Fill: &fill}}}}
	return e
}

// TestReadAndSend: the commands of http.md, archive.md, bundles.md, latest.md and hapi.md send to a gateway and read from a feed server.
func TestReadAndSend(t *testing.T) {
	for _, tool := range []string{"bash", "curl", "wget", "rclone", "jq", "tar"} {
		if _, err := exec.LookPath(tool); err != nil {
			if os.Getenv("CI") != "" {
				t.Fatalf("%s is not installed, and CI must run this test: see hack/needs.sh", tool)
			}
			t.Skipf("%s is not installed", tool)
		}
	}
	const site, sample = "thule", "20826.1,-86.75,46874.62"
	minio, nats := testenv.MinIO(t, testenv.MinIOOptions{}), testenv.NATS(t, testenv.NATSOptions{})
	testenv.CreateSite(t, nats.JetStream(t), site)
	minio.Bucket(t, bucket)
	port, telemetry := testenv.FreePort(t), testenv.FreePort(t)
	testenv.StartGateway(t, testenv.GatewayOptions{Site: site, NATS: nats, MinIO: minio, Bucket: bucket,
		Instruments: []wire.InstrumentEntry{public("allsky-1", port), public("keogram", port), public("mag-1", port), public("mag-2", port), boulder(telemetry)}})
	testenv.StartArchivist(t, testenv.ArchivistOptions{Site: site, NATS: nats, MinIO: minio, Bucket: bucket, Pod: "archivist-0", Flags: []string{"--part-interval", "1s"}})
	secrets := testenv.CredentialsDir(t, minioadmin.User{AccessKeyID: minio.AccessKeyID, SecretAccessKey: minio.SecretAccessKey})
	feedServer := testenv.StartFeedServer(t, testenv.FeedServerOptions{Site: site, NATS: nats,
		Flags: []string{"--s3-endpoint", minio.URL(), "--s3-bucket", bucket, "--s3-credentials-dir", secrets}})

	now := time.Now().UTC()
	var samples []string
	for i := range 10 {
		at := now.Add(time.Duration(i-10) * time.Second)
		samples = append(samples, fmt.Sprintf("%s %03d     20826.10    -86.75  46874.62  51815.05", at.Format("2006-01-02 15:04:05.000"), at.YearDay()))
	}
	sendAll(t, sender.Config{Addresses: []string{testenv.Loopback(telemetry)}, UDP: true, Lines: true, Rate: 1000, Paths: []string{"-"}, Stdin: strings.NewReader(strings.Join(samples, "\n"))})
	readers, gateway := "http://"+feedServer.Address(), "http://"+testenv.Loopback(port)
	here := strings.NewReplacer("https://archive.example.org", readers, "http://archive.example.org", readers, "https://data.example.org", readers, "http://gateway.example.org:30103", gateway,
		"2026-11-21T12:00Z", now.Add(-10*time.Second).Format(time.RFC3339), "2026-11-21T13:00Z", now.Format(time.RFC3339),
		"2026-11-20", now.Format(time.DateOnly), "2026-11-21", now.AddDate(0, 0, 1).Format(time.DateOnly), "while sleep 1h", "for once in 1")
	r := reading{dir: t.TempDir(), here: here, substorm: testenv.Program(t, "cli")}
	frame := bytes.Repeat([]byte("sky."), 50_000)
	for _, name := range []string{"frame-0707.jpg", "1200.jpg", "keogram-20261121.png"} {
		if err := os.WriteFile(filepath.Join(r.dir, name), frame, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r.run(t, marked(t, "how-to/http.md", t.Name()))
	for _, instrument := range []string{"allsky-1", "mag-1", "mag-2"} {
		r.run(t, "curl -T 1200.jpg "+gateway+"/in/"+instrument+"/2026/11/21/")
	}
	r.await(t, readers+"/archive/allsky-1/2026/11/21/1200.jpg", "sky.", len(frame)/4)
	r.await(t, r.here.Replace("https://data.example.org/hapi/data?dataset=boulder/seconds&start=2026-11-21T12:00Z&stop=2026-11-21T13:00Z"), sample, len(samples))
	for _, page := range []string{"how-to/archive.md", "how-to/bundles.md", "how-to/latest.md", "how-to/mirror-folder.md"} {
		r.run(t, marked(t, page, t.Name()))
	}
	if said := r.run(t, marked(t, "how-to/hapi.md", t.Name())); strings.Count(said, sample) != len(samples) {
		t.Errorf("the samples are not those that were sent:\n%s", said)
	}
	for _, path := range []string{
		strings.TrimPrefix(readers, "http://") + "/archive/allsky-1/2026/11/21/1200.jpg", // wget's
		"allsky-1/2026/11/21/frame-0707.jpg",                                             // rclone's
		"latest.jpg", "thule/allsky-1/2026/11/21/1200.jpg", "thule-copy/allsky-1/2026/11/21/1200.jpg", "keogram",
	} {
		if got, err := os.ReadFile(filepath.Join(r.dir, path)); err != nil || !bytes.Equal(got, frame) {
			t.Errorf("%s is not what was sent (%v)", path, err)
		}
	}
}

// reading is a folder in which commands run, with addresses and days of this machine for those of the documentation.
type reading struct {
	dir  string
	here *strings.Replacer
	// substorm is the program.
	substorm string
}

// run runs commands in bash; an answer of HTTP that is an error is one. kubectl
// does nothing: its results are there already.
func (r reading) run(t *testing.T, script string) string {
	t.Helper()
	script = "set -euo pipefail\nkubectl() { :; }\nsubstorm() { " + r.substorm + " \"$@\"; }\ncurl() { command curl -sS --fail-with-body \"$@\"; }\n" + r.here.Replace(script)
	cmd := exec.CommandContext(t.Context(), "bash", "-c", script)
	cmd.Dir = r.dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + r.dir, "TZ=America/St_Johns"}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s\n%v\n%s", script, err, out)
	}
	return string(out)
}

// await waits until an answer has a text so many times.
func (r reading) await(t *testing.T, url, has string, times int) {
	t.Helper()
	var late error
	for range testenv.Attempts() {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(request)
		if late = err; err == nil {
			body, _ := io.ReadAll(response.Body)
			_ = response.Body.Close()
			if strings.Count(string(body), has) == times {
				return
			}
		}
	}
	t.Fatalf("%s does not have %s %d times: %v", url, has, times, late)
}
