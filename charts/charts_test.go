// SPDX-License-Identifier: Apache-2.0

// Package charts holds the Helm charts, and the tests that run the real helm on them.
package charts

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/substorm/substorm/internal/natsaccounts"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/bus"
)

var update = flag.Bool("update", false, "write the golden files anew")

// helm runs helm and returns what it printed on standard output, and on standard error.
func helm(t *testing.T, args ...string) (out, errs string, err error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), testenv.Path(t, "helm"), args...)
	home := t.TempDir()
	cmd.Env = append(os.Environ(), "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home, "KUBECONFIG="+os.DevNull)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	return stdout.String(), stderr.String(), err
}

// rendering is a chart with values: one golden file.
type rendering struct {
	name, chart string
	args        []string
}

var renderings = []rendering{
	{"quickstart", "substorm-quickstart", nil},
	{"quickstart-three-servers", "substorm-quickstart", []string{"--set=nats.replicas=3,s3.sync=false,namePrefix=polar", "--set=nats.storage.storageClassName=fast"}},
	{"quickstart-linked", "substorm-quickstart", []string{
		"--set=nats.domain=north,nats.leafnodes.enabled=true,nats.leafnodes.service.type=LoadBalancer,nats.leafnodes.tlsSecretName=leaf-port",
		"--set=nats.leafOf.url=tls://hub.example.org:7422,nats.leafOf.secretName=hub-leaf-north",
		"--set=nats.leafOf.account=" + strings.Repeat("A", 56),
		"--set=nats.leafOf.denyStreams={FEED_north_aurora,CONS_north_display}",
		"--set=networkPolicy.monitoringFrom[0].ipBlock.cidr=192.0.2.0/24",
	}},
	{"substorm", "substorm", nil},
	{"substorm-watched", "substorm", []string{
		"--set=operator.networkPolicy.enabled=true,operator.networkPolicy.metricsFrom[0].namespaceSelector.matchLabels.name=monitoring",
		"--set=operator.networkPolicy.egress[0].to[0].ipBlock.cidr=192.0.2.0/24",
		"--set=operator.metrics.podMonitor.enabled=true,operator.metrics.podMonitor.interval=30s,operator.metrics.podMonitor.labels.release=prometheus",
		"--set=operator.watchAllNamespaces=true,operator.watchSecrets=true,operator.readNodes=true,operator.replicas=2,operator.priorityClassName=system-cluster-critical",
		"--set=operator.workers=16,operator.statusRate=250,operator.figuresRate=0.5,operator.secretRate=2000",
		"--set=operator.topologySpreadConstraints[0].maxSkew=1,operator.topologySpreadConstraints[0].topologyKey=rack,operator.topologySpreadConstraints[0].whenUnsatisfiable=DoNotSchedule",
		"--set=operator.topologySpreadConstraints[0].labelSelector.matchLabels.app=operator",
	}},
	{"substorm-without-cluster-rights", "substorm", []string{"--is-upgrade", "--set=operator.clusterID=polar,roles.create=false,crds.upgrade=false"}},
	{"substorm-metrics-bridge", "substorm", []string{"--set=metricsBridge.enabled=true,operator.networkPolicy.enabled=true"}},
	{"substorm-metrics-bridge-certificate", "substorm", []string{
		"--set=metricsBridge.enabled=true,metricsBridge.certificate.secretName=bridge-tls,metricsBridge.certificate.caBundle=QUJD",
		"--set=metricsBridge.apiServiceAnnotations.cert-manager\\.io/inject-ca-from=aurora/bridge-tls",
		"--set=metricsBridge.operatorMetrics={http://north-operator-metrics.north.svc:8080/metrics,http://south-operator-metrics.south.svc:8080/metrics}",
		"--set=metricsBridge.image.digest=sha256:" + strings.Repeat("e", 64),
	}},
	{"substorm-upgrade", "substorm", []string{"--is-upgrade"}},
	{"site", "substorm-site", nil},
	{"site-field", "substorm-site", []string{
		"--set=ingestGateway.spec.tls.certificateSecretRef.name=gateway-tls,ingestGateway.spec.tls.caSecretRef.name=field-ca",
		"--set=ingestGateway.spec.linkProbe.port=31862",
		"--set=ingestGateway.spec.edge.port=31900,ingestGateway.spec.edge.sources={10.0.0.0/24,2001:db8::/64}",
		"--set=ingestGateway.spec.unknownSenders=Quarantine,ingestGateway.spec.quarantine.maxSize=2Gi,ingestGateway.spec.quarantine.retention=48h,ingestGateway.spec.quarantine.ports={30149}",
		"--set=site.spec.objectStore.endpoint=https://s3.example.org,site.spec.jetStream.servers={tls://nats.example.org,tls://[2001:db8::7]:4333}",
		"--set=ingestGateway.networkPolicy.enabled=true,ingestGateway.networkPolicy.from[0].ipBlock.cidr=192.0.2.0/24",
		"--set=archivist.networkPolicy.enabled=true,archivist.networkPolicy.egress[0].to[0].ipBlock.cidr=198.51.100.9/32",
		"--set=archivist.networkPolicy.egress[0].ports[0].protocol=TCP,archivist.networkPolicy.egress[0].ports[0].port=5000",
		"--set=mirrors.networkPolicy.enabled=true,mirrors.networkPolicy.egress[0].to[0].ipBlock.cidr=203.0.113.0/24",
		"--set=mirrors.networkPolicy.egress[0].ports[0].protocol=TCP,mirrors.networkPolicy.egress[0].ports[0].port=873",
		"--set=feedServer.spec.replicas=3,feedServer.spec.tls.certificateSecretRef.name=feeds-tls,site.spec.readersSecretRef.name=readers",
		"--set=feedServer.spec.tls.caSecretRef.name=readers-ca",
		"--set=site.spec.readers[0].name=uni,site.spec.readers[0].clientCertificate.names={reader.uni.example}",
		"--set=feedServer.networkPolicy.enabled=true,feedServer.networkPolicy.from[0].ipBlock.cidr=192.0.2.0/24",
		"--set=feedServer.spec.rsync.window=720h,feedServer.networkPolicy.rsyncFrom[0].ipBlock.cidr=198.51.100.0/24",
		"--set=feedServer.name=public,ingestGateway.name=north,archivist.spec.podTemplate.resources.limits.memory=1Gi",
		"--set=podMonitor.enabled=true,podMonitor.interval=30s,podMonitor.labels.release=prometheus",
	}},
	{"quickstart-by-digest", "substorm-quickstart", []string{
		"--set=image.registry=registry.example.org,networkPolicy.enabled=false",
		"--set=nats.image.digest=sha256:" + strings.Repeat("0", 64) + ",s3.image.digest=sha256:" + strings.Repeat("1", 64),
	}},
	{"site-second-pool", "substorm-site", []string{
		"--set=site.enabled=false,site.name=thule,feedServer.enabled=false,ingestGateway.name=south,ingestGateway.spec.ports.first=30200,ingestGateway.spec.ports.last=30249",
		"--set=image.registry=registry.example.org,image.pullSecrets={pull},test.image.digest=sha256:" + strings.Repeat("c", 64),
	}},
	{"substorm-elsewhere", "substorm", []string{
		"--set=operator.image.digest=sha256:" + strings.Repeat("a", 64) + ",gateway.image.digest=sha256:" + strings.Repeat("b", 64) +
			",archivist.image.digest=sha256:" + strings.Repeat("d", 64),
		"--set=crds.upgrade=false",
		"--set=operator.watchNamespaces={thule,andoya},operator.replicas=2",
		"--set=image.registry=registry.example.org,image.tag=1.2.3,image.pullSecrets={pull}",
	}},
}

func (r rendering) render(t *testing.T) string {
	t.Helper()
	out, errs, err := helm(t, append([]string{"template", "test", r.chart, "--namespace=aurora"}, r.args...)...)
	if err != nil {
		t.Fatalf("%v\n%s", err, errs)
	}
	return out
}

func TestTemplates(t *testing.T) {
	for _, r := range renderings {
		t.Run(r.name, func(t *testing.T) {
			got := r.render(t)
			file := filepath.Join("testdata", r.name+".golden.yaml")
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("run `make golden` where this is what you meant (-want +got):\n%s", diff)
			}
		})
	}
}

// TestLeafDenies: a leaf of the quickstart denies what docs/how-to/leaf.md says and e2e/leaf tests, and so does substorm up.
func TestLeafDenies(t *testing.T) {
	subjects := regexp.MustCompile(`"([^" ]+\.>|\$JS\.[^" ]+)"`)
	denied := func(file string) []string {
		text, err := os.ReadFile(file)
		_, after, found := strings.Cut(string(text), "deny_imports: [")
		if err != nil || !found {
			t.Fatalf("%s denies nothing: %v", file, err)
		}
		imports, after, _ := strings.Cut(after, "]")
		_, after, _ = strings.Cut(after, "deny_exports: [")
		exports, _, _ := strings.Cut(after, "]")
		return subjects.FindAllString(imports+"\n"+exports, -1)
	}
	chart := slices.DeleteFunc(denied("testdata/quickstart-linked.golden.yaml"), func(subject string) bool {
		return strings.Contains(subject, ".FEED_") || strings.Contains(subject, ".CONS_") // which the values name
	})
	if diff := cmp.Diff(denied("../docs/how-to/leaf.md"), chart); diff != "" {
		t.Errorf("-docs/how-to/leaf.md +chart:\n%s", diff)
	}
	var embedded []string
	for _, subject := range slices.Concat(natsaccounts.LeafDenyImports("north", "north"), natsaccounts.LeafDenyExports()) {
		embedded = append(embedded, `"`+subject+`"`)
	}
	if diff := cmp.Diff(embedded, chart); diff != "" {
		t.Errorf("-embedded server +chart:\n%s", diff)
	}
}

// TestLeafDeniesAll: what a leaf has beside the two streams that its hub sources is on the list.
func TestLeafDeniesAll(t *testing.T) {
	text, err := os.ReadFile("testdata/quickstart-linked.golden.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), "deny_imports: [")
	denied, _, _ := strings.Cut(after, "]")
	site := &v1alpha1.Site{Spec: v1alpha1.SiteSpec{Code: "north"}}
	streams := []string{wire.FeedStream("north", "aurora"), wire.ConsumerStream("north", "display")} // as the values say
	for _, b := range bus.Buckets(site) {
		streams = append(streams, "KV_"+b.Name)
	}
	for _, name := range streams {
		for _, end := range []string{"", ".>"} {
			if !strings.Contains(denied, `"$JS.north.API.CONSUMER.*.`+name+end+`"`) {
				t.Errorf("a leaf does not deny consumers of %s%s", name, end)
			}
		}
	}
	for _, s := range bus.Streams(site) {
		if strings.Contains(denied, "*."+s.Name) {
			t.Errorf("a leaf denies consumers of %s, which its hub sources", s.Name)
		}
	}
}

func TestLint(t *testing.T) {
	for _, chart := range []string{"substorm", "substorm-site", "substorm-quickstart"} {
		if out, errs, err := helm(t, "lint", "--strict", chart); err != nil {
			t.Errorf("%s: %v\n%s%s", chart, err, out, errs)
		}
	}
}

// TestPackageHoldsTheCRDs: crds is a link to the top-level folder, and a packaged chart must be whole without it.
func TestPackageHoldsTheCRDs(t *testing.T) {
	dir := t.TempDir()
	if _, errs, err := helm(t, "package", "substorm", "--destination", dir); err != nil {
		t.Fatalf("%v\n%s", err, errs)
	}
	packages, err := filepath.Glob(filepath.Join(dir, "substorm-*.tgz"))
	if err != nil || len(packages) != 1 {
		t.Fatalf("packages %v, %v", packages, err)
	}
	packaged, errs, err := helm(t, "show", "crds", packages[0])
	if err != nil {
		t.Fatalf("%v\n%s", err, errs)
	}
	files, err := filepath.Glob("../crds/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("CRDs %v, %v", files, err)
	}
	for _, file := range files {
		crd, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(packaged, strings.TrimSpace(strings.TrimPrefix(string(crd), "---\n"))) {
			t.Errorf("the package lacks %s", file)
		}
	}
}

// The chart takes every value that the kind takes.
func TestFeedServerValues(t *testing.T) {
	out, errs, err := helm(t, "template", "test", "substorm-site", "--namespace=aurora",
		"--set=feedServer.spec.url=https://archive.example.org,feedServer.spec.proxies={192.0.2.0/24}",
		"--set=feedServer.spec.limits.robot.requestsPerSecond=1000,feedServer.spec.limits.person.burst=4000")
	if err != nil {
		t.Fatalf("%v\n%s", err, errs)
	}
	for _, want := range []string{"url: https://archive.example.org", "- 192.0.2.0/24", "requestsPerSecond: 1000", "burst: 4000"} {
		if !strings.Contains(out, want) {
			t.Errorf("the FeedServer has no %q", want)
		}
	}
}

// TestArchivistOfBothValues: what site.spec.archivist and archivist.spec say of the archivist are in the Site together.
func TestArchivistOfBothValues(t *testing.T) {
	archivist := func(args ...string) map[string]any {
		t.Helper()
		out, errs, err := helm(t, append([]string{"template", "test", "substorm-site", "--namespace=aurora", "--show-only=templates/site.yaml"}, args...)...)
		if err != nil {
			t.Fatalf("%v\n%s", err, errs)
		}
		var site struct {
			Spec struct {
				Archivist map[string]any `json:"archivist"`
			} `json:"spec"`
		}
		if err := yaml.Unmarshal([]byte(out), &site); err != nil {
			t.Fatal(err)
		}
		return site.Spec.Archivist
	}
	got := archivist("--set=site.spec.archivist.forwardNetworks={10.0.0.0/8},site.spec.archivist.podTemplate.resources.limits.memory=1Gi,site.spec.archivist.compactAfter=1h",
		"--set=archivist.spec.partInterval=7s,archivist.spec.podTemplate.resources.limits.cpu=0,archivist.spec.compactAfter=1h")
	want := map[string]any{"forwardNetworks": []any{"10.0.0.0/8"}, "partInterval": "7s", "compactAfter": "1h",
		"podTemplate": map[string]any{"resources": map[string]any{"limits": map[string]any{"memory": "1Gi", "cpu": 0.0}}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if diff := cmp.Diff(map[string]any{"partInterval": "7s"}, archivist("--set=site.spec.archivist=null,archivist.spec.partInterval=7s")); diff != "" {
		t.Errorf("of an archivist that the Site's values take out, -want +got:\n%s", diff)
	}
}

// TestNotesOfFinalizers: the notes after an install of the operator or a Site say how finalizers are removed if no operator does it.
func TestNotesOfFinalizers(t *testing.T) {
	for chart, site := range map[string]string{"substorm": "NAME", "substorm-site": "demo"} {
		out, errs, err := helm(t, "install", "test", chart, "--namespace=aurora", "--dry-run=client")
		if err != nil {
			t.Fatalf("%v\n%s", err, errs)
		}
		for _, of := range []string{"feed NAME", "site " + site} {
			if want := "kubectl -n aurora patch " + of + ` --type=merge -p '{"metadata":{"finalizers":null}}'`; !strings.Contains(out, want) {
				t.Errorf("the notes of %s do not say %s:\n%s", chart, want, out[strings.LastIndex(out, "NOTES:")+1:])
			}
		}
	}
}

func TestBadValues(t *testing.T) {
	for name, test := range map[string]struct {
		chart, set string
		want       []string
	}{
		"a misspelled value":            {"substorm-quickstart", "natz.replicas=3", []string{"natz", "not allowed"}},
		"two NATS servers":              {"substorm-quickstart", "nats.replicas=2", []string{"/nats/replicas", "1, 3"}},
		"a size without a unit":         {"substorm-quickstart", "s3.storage.size=10", []string{"/s3/storage/size"}},
		"a log like its volume":         {"substorm-quickstart", "nats.storage.size=9Gi", []string{"nats.maxFileStore 9Gi", "nats.storage.size 9Gi"}},
		"a log past its volume":         {"substorm-quickstart", "nats.maxFileStore=1Ti", []string{"nats.maxFileStore 1Ti", "nats.storage.size 10Gi"}},
		"a leaf of no account":          {"substorm-quickstart", "nats.leafOf.url=tls://hub:7422", []string{"nats.leafOf.account", "account.id"}},
		"a hub without TLS":             {"substorm-quickstart", "nats.leafOf.url=nats://hub:7422", []string{"/nats/leafOf/url", "does not match"}},
		"a prefix with a dot":           {"substorm-quickstart", "namePrefix=a.b", []string{"/namePrefix", "does not match"}},
		"a code in capitals":            {"substorm-site", "site.spec.code=THULE", []string{"/site/spec/code", "does not match"}},
		"no bucket":                     {"substorm-site", "site.spec.objectStore.bucket=null", []string{"/site/spec/objectStore", "bucket"}},
		"no replicas but a word":        {"substorm-site", "ingestGateway.spec.replicas=two", []string{"/ingestGateway/spec/replicas", "want integer"}},
		"an edge for anybody":           {"substorm-site", "ingestGateway.spec.edge.port=31900", []string{"/ingestGateway/spec/edge", "sources"}},
		"an edge without a range":       {"substorm-site", "ingestGateway.spec.edge.port=31900,ingestGateway.spec.edge.sources={10.0.0.1}", []string{"/edge/sources/0", "does not match"}},
		"unknown senders in capitals":   {"substorm-site", "ingestGateway.spec.unknownSenders=QUARANTINE", []string{"/unknownSenders", "Quarantine"}},
		"no feed servers but a word":    {"substorm-site", "feedServer.spec.replicas=-1", []string{"/feedServer/spec/replicas", "minimum"}},
		"a robot that may not ask":      {"substorm-site", "feedServer.spec.limits.robot.burst=0", []string{"/feedServer/spec/limits/robot/burst", "minimum"}},
		"a feed server's TLS":           {"substorm-site", "feedServer.spec.tls.secretRef.name=x", []string{"/feedServer/spec/tls", "secretRef"}},
		"a misspelled Secret":           {"substorm-site", "ingestGateway.spec.tls.secret=x", []string{"/ingestGateway/spec/tls", "secret"}},
		"senders of a run of a mirror":  {"substorm-site", "mirrors.networkPolicy.from[0].ipBlock.cidr=192.0.2.0/24", []string{"/mirrors/networkPolicy"}},
		"senders of an archivist":       {"substorm-site", "archivist.networkPolicy.from[0].ipBlock.cidr=192.0.2.0/24", []string{"/archivist/networkPolicy"}},
		"rsync of a pool":               {"substorm-site", "ingestGateway.networkPolicy.rsyncFrom[0].ipBlock.cidr=192.0.2.0/24", []string{"/ingestGateway/networkPolicy"}},
		"a peer that is none":           {"substorm-site", "ingestGateway.networkPolicy.from[0].cidr=192.0.2.0/24", []string{"/networkPolicy/from/0", "cidr"}},
		"a log level unheard of":        {"substorm", "operator.logLevel=loud", []string{"/operator/logLevel", "debug"}},
		"all namespaces, and some":      {"substorm", "operator.watchAllNamespaces=true,operator.watchNamespaces={thule}", []string{"operator.watchAllNamespaces", "operator.watchNamespaces"}},
		"less memory than none":         {"substorm", "operator.resources.limits.memory=-1Gi", []string{"/operator/resources/limits/memory", "does not match"}},
		"memory of a negative number":   {"substorm", "operator.resources.requests.memory=-1", []string{"/operator/resources/requests/memory", "minimum"}},
		"a test with no memory":         {"substorm-site", "test.resources.limits.memory=-128Mi", []string{"/test/resources/limits/memory", "does not match"}},
		"NATS with less than none":      {"substorm-quickstart", "nats.resources.limits.memory=-1Gi", []string{"/nats/resources/limits/memory", "does not match"}},
		"fewer workers than none":       {"substorm", "operator.workers=-1", []string{"/operator/workers", "minimum"}},
		"half a worker":                 {"substorm", "operator.workers=1.5", []string{"/operator/workers", "integer"}},
		"a rate below none":             {"substorm", "operator.secretRate=-1", []string{"/operator/secretRate", "minimum"}},
		"two opinions on an archivist":  {"substorm-site", "site.spec.archivist.partInterval=9s,archivist.spec.partInterval=7s", []string{"site.spec.archivist.partInterval", "9s", "archivist.spec.partInterval", "7s"}},
		"two opinions deep within":      {"substorm-site", "site.spec.archivist.podTemplate.hostNetwork=true,archivist.spec.podTemplate.hostNetwork=false", []string{"archivist.spec.podTemplate.hostNetwork is false"}},
		"a cluster's name in two words": {"substorm", "operator.clusterID=a b", []string{"/operator/clusterID", "does not match"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, errs, err := helm(t, "template", "test", test.chart, "--namespace=aurora", "--set", test.set)
			if err == nil {
				t.Fatal("accepted")
			}
			for _, want := range test.want {
				if !strings.Contains(errs, want) {
					t.Errorf("the error does not say %q:\n%s", want, errs)
				}
			}
		})
	}
}
