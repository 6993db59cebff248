// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"encoding/json"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/substorm/substorm/internal/natsaccounts"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan"
	"github.com/substorm/substorm/operator/plan/accept"
	"github.com/substorm/substorm/operator/plan/bus"
	"github.com/substorm/substorm/operator/plan/entries"
	"github.com/substorm/substorm/operator/plan/finding"
	"github.com/substorm/substorm/operator/plan/instrument"
	"github.com/substorm/substorm/operator/plan/observed"
	"github.com/substorm/substorm/operator/plan/workload"
)

var update = flag.Bool("update", false, "write the .out.yaml files anew")

// world is what a test's .in.yaml holds: the resources as a person writes
// them, and what the operator saw.
type world struct {
	Now time.Time `json:"now"`
	// Show names the parts of the plan that the test is about.
	Show []string `json:"show"`

	Sites          []map[string]any `json:"sites"`
	IngestGateways []map[string]any `json:"ingestGateways"`
	FeedServers    []map[string]any `json:"feedServers"`
	Instruments    []map[string]any `json:"instruments"`
	Feeds          []map[string]any `json:"feeds"`
	FeedConsumers  []map[string]any `json:"feedConsumers"`

	Secrets map[string]map[string]string `json:"secrets"`
	// Unlabeled are the Secrets without the label of those with tokens.
	Unlabeled    []string             `json:"unlabeled"`
	StatefulSets []appsv1.StatefulSet `json:"statefulSets"`
	Pods         []corev1.Pod         `json:"pods"`
	Services     []corev1.Service     `json:"services"`

	// Scaling is what decides how many pods there are, by pool: pool/north, feed-server/public.
	Scaling map[string]plan.Scaling `json:"scaling"`

	// Refused is what the API server said of the StatefulSet of a pool that it refused.
	Refused map[string]string `json:"refused"`

	// Unjudged are the Sites whose Instruments were not judged yet.
	Unjudged []string `json:"unjudged"`

	// By Site.
	Backends map[string]plan.Backends           `json:"backends"`
	Markers  map[string]wire.SiteMarker         `json:"markers"`
	Links    map[string]*natsaccounts.LinkState `json:"links"`
	Disks    map[string]*plan.Disk              `json:"disks"`
	// Manifests are what substorm up could not apply, by Site.
	Manifests map[string]*plan.Manifests `json:"manifests"`
	// Owned are the keys of Secrets that a field manager owns; of a Secret that is not named it is not known who owns what.
	Owned    map[string][]string               `json:"owned"`
	Bus      map[string]observed.Bus           `json:"bus"`
	Registry map[string]observed.RegistryState `json:"registry"`

	GatewayReports []observed.GatewayReport `json:"gatewayReports"`
	// By Instrument.
	InstrumentReports map[string][]observed.InstrumentReport `json:"instrumentReports"`
	Forwards          map[string]*wire.ForwardStatus         `json:"forwards"`
	Clocks            map[string]*wire.ClockStatus           `json:"clocks"`
	Contents          map[string]*wire.ContentStatus         `json:"contents"`
	Senders           map[string]*observed.SenderReport      `json:"senders"`
	Damage            map[string][]wire.Damage               `json:"damage"`
	// Credentials in the Secrets of pools, FeedServers and FeedConsumers, and of
	// leaves, as in pool/north, feed-server/public, consumer/model and leaf/outpost.
	Credentials map[string]*bus.Credentials `json:"credentials"`
	// Ledgers are what archivists reported, by Site.
	Ledgers map[string]*wire.LedgerStatus `json:"ledgers"`
	// Expiries are what archivists reported of what keeps data from expiring, by Site.
	Expiries map[string]*wire.ExpiryStatus `json:"expiries"`
	// Pullers are what readers that pull said, by Site and reader.
	Pullers map[string]map[string]wire.PullerStatus `json:"pullers"`
	// Weather is what sources of space weather reported, by Site.
	Weather map[string]*plan.Weather `json:"weather"`
	// Scrubs are what archivists reported of reading the archive, by Site.
	Scrubs map[string]*wire.ScrubStatus `json:"scrubs"`

	feedWorld
	mirrorWorld
}

// planned is what a test's .out.yaml holds.
type planned struct {
	Sites          map[string]v1alpha1.SiteStatus          `json:"sites,omitempty"`
	IngestGateways map[string]v1alpha1.IngestGatewayStatus `json:"ingestGateways,omitempty"`
	Instruments    map[string]v1alpha1.InstrumentStatus    `json:"instruments,omitempty"`
	Registry       map[string]entries.Change               `json:"registry,omitempty"`
	Streams        map[string][]bus.Stream                 `json:"streams,omitempty"`
	Buckets        map[string][]bus.Bucket                 `json:"buckets,omitempty"`
	Markers        map[string]markerVerdict                `json:"markers,omitempty"`
	Users          map[string]bus.JetStreamUser            `json:"users,omitempty"`
	LeafUsers      map[string]bus.JetStreamUser            `json:"leafUsers,omitempty"`
	Objects        map[string][]workload.Object            `json:"objects,omitempty"`
	// Replicas are how many pods there should be, by pool.
	Replicas map[string]int32 `json:"replicas,omitempty"`
	// Credentials says what becomes of those that were found.
	Credentials map[string]bus.CredentialsAction `json:"credentials,omitempty"`

	feedsPlanned
	mirrorsPlanned
	// RequeueAfter is when to look at each resource again, by part and name.
	RequeueAfter map[string]map[string]string `json:"requeueAfter,omitempty"`
}

type markerVerdict struct {
	Action   plan.MarkerAction `json:"action"`
	Conflict *finding.Finding  `json:"conflict,omitempty"`
}

const cluster = "0c5ffbd6-kube-system"

func TestGolden(t *testing.T) {
	inputs, err := filepath.Glob("testdata/*.in.yaml")
	if err != nil || len(inputs) == 0 {
		t.Fatalf("no inputs: %v", err)
	}
	for _, input := range inputs {
		name := strings.TrimSuffix(filepath.Base(input), ".in.yaml")
		t.Run(name, func(t *testing.T) {
			data := must(os.ReadFile(input))(t)
			var w world
			if err := yaml.UnmarshalStrict(data, &w); err != nil {
				t.Fatal(err)
			}
			before := must(yaml.Marshal(w))(t)
			got := must(yaml.Marshal(w.plan(t)))(t)
			if diff := cmp.Diff(string(before), string(must(yaml.Marshal(w))(t))); diff != "" {
				t.Errorf("the planner changed its input:\n%s", diff)
			}
			output := filepath.Join("testdata", name+".out.yaml")
			if *update {
				if err := os.WriteFile(output, got, 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			want := must(os.ReadFile(output))(t)
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("%s differs (-want +got); `make golden` writes it anew:\n%s", output, diff)
			}
		})
	}
}

func (w world) plan(t *testing.T) planned {
	sites := load[v1alpha1.Site](t, "sites", w.Sites)
	gateways := load[v1alpha1.IngestGateway](t, "ingestgateways", w.IngestGateways)
	instruments := load[v1alpha1.Instrument](t, "instruments", w.Instruments)
	secrets := workload.Secrets{}
	for name, data := range w.Secrets {
		secrets[name] = &corev1.Secret{Data: map[string][]byte{}}
		if !slices.Contains(w.Unlabeled, name) {
			secrets[name].Labels = map[string]string{accept.LabelTokens: "true"}
		}
		for k, v := range data {
			secrets[name].Data[k] = []byte(v)
		}
		if keys := w.Owned[name]; keys != nil {
			owned := map[string]any{}
			for _, key := range keys {
				owned["f:"+key] = map[string]any{}
			}
			raw := must(json.Marshal(map[string]any{"f:data": owned}))(t)
			secrets[name].ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl", FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(string(raw))}}
		}
	}

	out := planned{
		Sites: map[string]v1alpha1.SiteStatus{}, IngestGateways: map[string]v1alpha1.IngestGatewayStatus{},
		Instruments: map[string]v1alpha1.InstrumentStatus{}, Registry: map[string]entries.Change{},
		Streams: map[string][]bus.Stream{}, Buckets: map[string][]bus.Bucket{},
		Markers: map[string]markerVerdict{}, Users: map[string]bus.JetStreamUser{}, Objects: map[string][]workload.Object{},
		Replicas: map[string]int32{}, RequeueAfter: map[string]map[string]string{}, feedsPlanned: newFeedsPlanned(), mirrorsPlanned: newMirrorsPlanned(),
	}
	siteOf := map[string]*v1alpha1.Site{}
	names := map[string]bool{}
	servers := load[v1alpha1.FeedServer](t, "feedservers", w.FeedServers)
	for _, m := range load[v1alpha1.MirrorPartner](t, "mirrorpartners", w.MirrorPartners) {
		names[m.Spec.SiteRef.Name] = true
	}
	for i := range servers {
		names[servers[i].Spec.SiteRef.Name] = true
	}
	for i := range sites {
		siteOf[sites[i].Name] = &sites[i]
		names[sites[i].Name] = true
	}
	for i := range instruments {
		names[instruments[i].Spec.SiteRef.Name] = true
	}
	for i := range gateways {
		names[gateways[i].Spec.SiteRef.Name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		w.planSite(t, &out, name, siteOf[name], sites, gateways, servers, instruments, secrets)
	}
	return out.only(t, w.Show)
}

func (w world) planSite(t *testing.T, out *planned, name string, site *v1alpha1.Site, sites []v1alpha1.Site, gateways []v1alpha1.IngestGateway, servers []v1alpha1.FeedServer, instruments []v1alpha1.Instrument, secrets workload.Secrets) {
	ofSite := func(ref v1alpha1.LocalReference) bool { return ref.Name == name }
	pools := keep(gateways, func(g v1alpha1.IngestGateway) bool { return ofSite(g.Spec.SiteRef) })
	servers = keep(servers, func(s v1alpha1.FeedServer) bool { return ofSite(s.Spec.SiteRef) })
	mine := keep(instruments, func(i v1alpha1.Instrument) bool { return ofSite(i.Spec.SiteRef) })
	view := plan.SiteView{Now: w.Now, Site: site, Sites: sites, Secrets: secrets,
		Backends: w.Backends[name], Registry: w.Registry[name], Flowing: map[string]finding.Finding{}, Counted: true,
		Gateways: pools, FeedServers: servers, Archivist: w.archivist(site), Ledger: w.Ledgers[name], Expiry: w.Expiries[name], Pullers: w.Pullers[name], Scrub: w.Scrubs[name], Weather: w.Weather[name], Link: w.Links[name], Disk: w.Disks[name], Manifests: w.Manifests[name]}
	for _, damaged := range w.Damage {
		for _, d := range damaged {
			view.Damage.Add(d)
		}
	}
	var accepted finding.Finding
	if site != nil {
		accepted = plan.SiteAccepted(view)
		view.Archivist.Credentials = w.credentialsOf(out, "archivist", bus.ArchivistUser(site), site.Annotations)
	}
	verdicts := accept.Instruments(site, accepted, pools, mine, secrets)
	registry := w.Registry[name]
	var complete *wire.RegistryComplete
	if registry.Revision > 0 {
		complete = &wire.RegistryComplete{Revision: registry.Revision, Count: len(registry.Entries),
			Feeds: len(registry.Feeds), Consumers: len(registry.Consumers), Readers: len(registry.Readers), Mirrors: len(registry.Mirrors)}
	}
	in := entries.Input{Site: site, Instruments: mine, Verdicts: verdicts, Secrets: secrets}
	w.planFeeds(t, out, &in, servers, name, accepted, registry)
	w.planServers(out, site, servers, accepted, in.Secrets)
	in.Mirrors = keep(load[v1alpha1.MirrorPartner](t, "mirrorpartners", w.MirrorPartners), func(m v1alpha1.MirrorPartner) bool { return ofSite(m.Spec.SiteRef) })
	w.planMirrors(t, out, &in, accepted, registry)
	view.Unreadable, view.Deletion = entries.UnreadableObjects(in, pools, servers), out.Deletions["site/"+name]
	out.Registry[name] = entries.Plan(in, registry, complete, 0)

	for i := range mine {
		w.planInstrument(out, &mine[i], verdicts[mine[i].Name], registry, pools, view.Flowing)
	}
	for i := range pools {
		w.planPool(t, out, &pools[i], site, accepted, gateways, secrets, in)
	}
	if site == nil {
		return
	}
	status, wait := plan.SiteStatus(view)
	out.Sites[name] = status
	out.requeue("sites", name, wait)
	out.Streams[name], out.Buckets[name] = slices.Concat(bus.Streams(site), bus.CopiedStreams(site)), bus.Buckets(site)
	out.Markers[name] = w.judgeMarker(site)
	out.Users["operator"] = bus.OperatorUser(site)
	for _, leaf := range site.Spec.Leaves {
		if out.LeafUsers == nil {
			out.LeafUsers = map[string]bus.JetStreamUser{}
		}
		out.LeafUsers[leaf.Code] = bus.LeafUser(site, leaf)
		w.credentialsOf(out, "leaf/"+leaf.Code, out.LeafUsers[leaf.Code], nil)
	}
}

func (w world) judgeMarker(site *v1alpha1.Site) markerVerdict {
	ours := plan.Marker(site, cluster)
	found, exists := w.Markers[site.Name]
	if !exists {
		return markerVerdict{Action: plan.JudgeMarker(ours, nil, "")}
	}
	v := markerVerdict{Action: plan.JudgeMarker(ours, &found, site.Annotations[v1alpha1.AnnotationTakeOver])}
	if v.Action == plan.MarkerRespect {
		f := plan.MarkerConflict(ours, found, `bucket "substorm"`)
		v.Conflict = &f
	}
	return v
}

func (w world) planInstrument(out *planned, inst *v1alpha1.Instrument, verdict accept.Verdict, registry observed.RegistryState, pools []v1alpha1.IngestGateway, flowing map[string]finding.Finding) {
	view := instrument.View{Now: w.Now, Instrument: inst, Verdict: verdict, Bus: w.Bus[inst.Spec.SiteRef.Name],
		Gateways: w.GatewayReports, Reports: w.InstrumentReports[inst.Name], Forward: w.Forwards[inst.Name], Damage: w.Damage[inst.Name], Clock: w.Clocks[inst.Name], Content: w.Contents[inst.Name], Sender: w.Senders[inst.Name], Pods: w.Pods, Services: w.Services}
	if entry, exists := registry.Entries[inst.Name]; exists {
		view.Entry = &entry
	}
	for i := range pools {
		if pools[i].Name == verdict.Gateway {
			view.Pool = &pools[i]
		}
	}
	status, wait := instrument.Status(view)
	out.Instruments[inst.Name] = status
	out.requeue("instruments", inst.Name, wait)
	flowing[inst.Name] = finding.Of(status.Conditions, v1alpha1.ConditionDataFlowing)
}

func (w world) planPool(t *testing.T, out *planned, pool *v1alpha1.IngestGateway, site *v1alpha1.Site, accepted finding.Finding, all []v1alpha1.IngestGateway, secrets workload.Secrets, in entries.Input) {
	instruments, verdicts, registry := in.Instruments, in.Verdicts, w.Registry[pool.Spec.SiteRef.Name]
	view := plan.GatewayView{Now: w.Now, Gateway: pool, Site: site, SiteAccepted: accepted, Others: all, Secrets: secrets,
		Bus: w.Bus[pool.Spec.SiteRef.Name], Reports: w.GatewayReports, Registry: registry,
		Image: "substorm/ingest-gateway:dev", OtherSets: map[string]*appsv1.StatefulSet{}, Scaling: w.Scaling["pool/"+pool.Name]}
	for i := range w.StatefulSets {
		if w.StatefulSets[i].Name == pool.Name {
			view.StatefulSet = &w.StatefulSets[i]
		} else {
			view.OtherSets[w.StatefulSets[i].Name] = &w.StatefulSets[i]
		}
	}
	if problem := w.Refused[pool.Name]; problem != "" {
		view.Failed = new(plan.ApplyFailed("StatefulSet", pool.Name, problem))
	}
	view.Judged = !slices.Contains(w.Unjudged, pool.Spec.SiteRef.Name)
	for _, inst := range instruments {
		if view.Judged && plan.ReplicatedOn(&inst, verdicts[inst.Name]) == pool.Name {
			view.Replicated = append(view.Replicated, inst.Name)
		}
	}
	slices.Sort(view.Replicated)
	view.Pods = keep(w.Pods, func(p corev1.Pod) bool { return p.Labels[workload.LabelInstance] == pool.Name })
	if site != nil {
		view.Credentials = w.credentialsOf(out, "pool/"+pool.Name, bus.GatewayUser(site, pool.Name), pool.Annotations)
	}
	status, wait := plan.GatewayStatus(view)
	out.IngestGateways[pool.Name] = status
	out.requeue("ingestGateways", pool.Name, wait)
	out.Replicas[pool.Name] = view.Replicas()
	if site == nil {
		return
	}
	p := workload.Pool{Gateway: pool, Site: site, Replicas: view.Replicas(), Image: view.Image, Apart: view.PodsApart(), Secrets: view.Secrets}
	if view.WaitsForTurn() != "" {
		p.Keeps = must(plan.TemplateAsItIs(&view.StatefulSet.Spec.Template))(t)
	}
	if site.Spec.JetStream.AccountKeySecretRef != nil {
		user := bus.GatewayUser(site, pool.Name)
		out.Users[pool.Name] = user
		p.Permissions = user.Hash("AACCOUNT", "AACCOUNT")
	}
	out.Objects[pool.Name] = p.Objects()
}

func (p *planned) requeue(part, name string, after time.Duration) {
	if p.RequeueAfter[part] == nil {
		p.RequeueAfter[part] = map[string]string{}
	}
	p.RequeueAfter[part][name] = after.String()
}

// only drops the parts that a test does not show.
func (p planned) only(t *testing.T, show []string) planned {
	t.Helper()
	var out planned
	for _, part := range show {
		if waits := p.RequeueAfter[part]; waits != nil {
			if out.RequeueAfter == nil {
				out.RequeueAfter = map[string]map[string]string{}
			}
			out.RequeueAfter[part] = waits
		}
		switch part {
		case "sites":
			out.Sites = p.Sites
		case "ingestGateways":
			out.IngestGateways = p.IngestGateways
		case "instruments":
			out.Instruments = p.Instruments
		case "registry":
			out.Registry = p.Registry
		case "streams":
			out.Streams, out.Buckets = p.Streams, p.Buckets
		case "markers":
			out.Markers = p.Markers
		case "users":
			out.Users = p.Users
		case "leafUsers":
			out.LeafUsers = p.LeafUsers
		case "replicas":
			out.Replicas = p.Replicas
		case "credentials":
			out.Credentials = p.Credentials
		case "objects":
			out.Objects = p.Objects
		default:
			if !out.mirrorsPlanned.add(part, p.mirrorsPlanned) {
				out.feedsPlanned.add(t, part, p.feedsPlanned)
			}
		}
	}
	return out
}

func keep[T any](all []T, wanted func(T) bool) []T {
	return slices.DeleteFunc(slices.Clone(all), func(v T) bool { return !wanted(v) })
}

// load decodes resources and fills in the defaults of the CRD, as the API server does.
func load[T any](t *testing.T, plural string, manifests []map[string]any) []T {
	t.Helper()
	s := structural(t, plural)
	all := make([]T, len(manifests))
	for i := range manifests {
		m := runtime.DeepCopyJSON(normalized(t, manifests[i]))
		defaulting.Default(m, s)
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(m, &all[i]); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// normalized turns the numbers of a manifest into those of the API machinery.
func normalized(t *testing.T, m map[string]any) map[string]any {
	t.Helper()
	var out map[string]any
	if err := yaml.Unmarshal(must(yaml.Marshal(m))(t), &out); err != nil {
		t.Fatal(err)
	}
	return integers(out).(map[string]any)
}

func integers(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k := range v {
			v[k] = integers(v[k])
		}
	case []any:
		for i := range v {
			v[i] = integers(v[i])
		}
	case float64:
		return int64(v)
	}
	return v
}

// structurals are the schemas by plural: each is read once.
var structurals sync.Map

func structural(t *testing.T, plural string) *schema.Structural {
	t.Helper()
	if known, ok := structurals.Load(plural); ok {
		return known.(*schema.Structural)
	}
	data := must(os.ReadFile("../../crds/substorm.dev_" + plural + ".yaml"))(t)
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.Unmarshal(data, &crd); err != nil {
		t.Fatal(err)
	}
	var internal apiextensions.JSONSchemaProps
	err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(
		crd.Spec.Versions[0].Schema.OpenAPIV3Schema, &internal, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := must(schema.NewStructural(&internal))(t)
	structurals.Store(plural, s)
	return s
}

func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
