// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

var metricRow = regexp.MustCompile("(?m)^\\| `(substorm_[a-z_]+)` \\| ([a-z]+) \\|")

// TestMetrics: what programs serve is what the page of metrics says of them, which is read out of their source.
func TestMetrics(t *testing.T) {
	minio, nats := testenv.MinIO(t, testenv.MinIOOptions{}), testenv.NATS(t, testenv.NATSOptions{})
	testenv.CreateSite(t, nats.JetStream(t), siteCode)
	minio.Bucket(t, bucket)
	gateway := testenv.StartGateway(t, testenv.GatewayOptions{Site: siteCode, NATS: nats, MinIO: minio, Bucket: bucket,
		Instruments: []wire.InstrumentEntry{testenv.InstrumentTCP(camera, testenv.FreePort(t))}})
	feedServer := testenv.StartFeedServer(t, testenv.FeedServerOptions{Site: siteCode, NATS: nats})
	for program, url := range map[string]string{"ingest-gateway": gateway.Metrics(), "feed-server": feedServer.Metrics()} {
		t.Run(program, func(t *testing.T) {
			says := documented(t, program)
			for name, kind := range served(t, url) {
				if says[name] != kind {
					t.Errorf("%s is a %s; reference/metrics.md says %q", name, kind, says[name])
				}
			}
		})
	}
}

// documented are the types of a program's metrics as the page has them.
func documented(t *testing.T, program string) map[string]string {
	t.Helper()
	text, err := os.ReadFile("reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "\n## "+program+"\n")
	section, _, _ = strings.Cut(section, "\n## ")
	rows := metricRow.FindAllStringSubmatch(section, -1)
	if !found || len(rows) == 0 {
		t.Fatalf("reference/metrics.md has nothing of %s", program)
	}
	is := map[string]string{}
	for _, r := range rows {
		is[r[1]] = r[2]
	}
	return is
}

// served are the types of the metrics of ours that a program serves.
func served(t *testing.T, url string) map[string]string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	is := map[string]string{}
	for name, family := range families {
		if strings.HasPrefix(name, "substorm_") {
			is[name] = strings.ToLower(family.GetType().String())
		}
	}
	if len(is) == 0 {
		t.Fatalf("%s serves no metrics of ours", url)
	}
	return is
}
