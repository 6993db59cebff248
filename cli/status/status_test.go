// SPDX-License-Identifier: Apache-2.0

package status

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/substorm/substorm/cli/kube/kubetest"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/usage"
	"github.com/substorm/substorm/operator/api/v1alpha1"
)

var now = time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC)

// is makes a condition as the operator sets it.
func is(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(now.Add(-10 * time.Minute))}
}

func yes(kind string) metav1.Condition { return is(kind, metav1.ConditionTrue, kind, "it is") }

func object(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "aurora", Name: name} }

func site(conditions ...metav1.Condition) v1alpha1.Site {
	return v1alpha1.Site{
		ObjectMeta: object("demo"),
		Spec: v1alpha1.SiteSpec{Code: "demo",
			ObjectStore: v1alpha1.ObjectStore{Endpoint: "https://s3.aurora.svc:9000", Bucket: "archive", CredentialsSecretRef: v1alpha1.LocalReference{Name: "s3"}},
			JetStream:   v1alpha1.JetStream{Servers: []string{"tls://nats.aurora.svc:4222"}, CredentialsSecretRef: &v1alpha1.LocalReference{Name: "nats"}}},
		Status: v1alpha1.SiteStatus{Conditions: conditions, RegistryRevision: 12, ObservedGeneration: 1},
	}
}

func gateway(ready, revision int, conditions ...metav1.Condition) v1alpha1.IngestGateway {
	return v1alpha1.IngestGateway{
		ObjectMeta: object("demo"),
		Spec:       v1alpha1.IngestGatewaySpec{SiteRef: v1alpha1.LocalReference{Name: "demo"}, Replicas: ptr.To[int32](3)},
		Status: v1alpha1.IngestGatewayStatus{Conditions: conditions, ReadyReplicas: ptr.To(int32(ready)), Replicas: ptr.To[int32](3),
			Datapath: v1alpha1.DatapathKernel, RegistryRevision: int64(revision), ObservedGeneration: 1},
	}
}

func anInstrument(name string, received *metav1.Time, conditions ...metav1.Condition) v1alpha1.Instrument {
	i := v1alpha1.Instrument{
		ObjectMeta: object(name),
		Spec: v1alpha1.InstrumentSpec{SiteRef: v1alpha1.LocalReference{Name: "demo"}, Type: "Magnetometer", State: v1alpha1.InstrumentActive,
			Listeners: []v1alpha1.Listener{{Name: "telemetry", Protocol: v1alpha1.ListenerUDP, Port: 30102}}},
		Status: v1alpha1.InstrumentStatus{Conditions: conditions, LastReceivedTime: received, ObservedGeneration: 1,
			Listeners: []v1alpha1.ListenerStatus{{Name: "telemetry", Addresses: []v1alpha1.ListenerAddress{{Address: "192.0.2.1:30102"}}}}},
	}
	if received != nil {
		i.Status.ReceivedToday = &v1alpha1.DayCounts{Day: "2026-11-21", DatagramCount: 180, Bytes: 5400}
	}
	return i
}

var (
	allOfSite = []metav1.Condition{yes(v1alpha1.ConditionAccepted), yes(v1alpha1.ConditionObjectStoreReachable), yes(v1alpha1.ConditionJetStreamReachable),
		yes(v1alpha1.ConditionDurable), yes(v1alpha1.ConditionReady)}
	allOfGateway    = []metav1.Condition{yes(v1alpha1.ConditionAccepted), yes(v1alpha1.ConditionReady)}
	allOfInstrument = []metav1.Condition{yes(v1alpha1.ConditionAccepted), yes(v1alpha1.ConditionReady), is(v1alpha1.ConditionDataFlowing, "True", "Flowing", "data flows")}
	lately          = ptr.To(metav1.NewTime(now.Add(-10 * time.Minute)))
)

func of(sites []v1alpha1.Site, gateways []v1alpha1.IngestGateway, instruments []v1alpha1.Instrument, namespace string) Report {
	return Summarize(Resources{Sites: sites, Gateways: gateways, Instruments: instruments}, namespace, now)
}

func feed(conditions ...metav1.Condition) v1alpha1.Feed {
	return v1alpha1.Feed{ObjectMeta: object("everything"), Spec: v1alpha1.FeedSpec{SiteRef: v1alpha1.LocalReference{Name: "demo"}},
		Status: v1alpha1.FeedStatus{Conditions: conditions, InstrumentCount: ptr.To[int32](1), MessagesPerMinute: ptr.To[int64](60), ConsumerCount: ptr.To[int32](2), ObservedGeneration: 1}}
}

func feedServer(name string, connections *int32, conditions ...metav1.Condition) v1alpha1.FeedServer {
	return v1alpha1.FeedServer{ObjectMeta: object(name), Spec: v1alpha1.FeedServerSpec{SiteRef: v1alpha1.LocalReference{Name: "demo"}},
		Status: v1alpha1.FeedServerStatus{Conditions: conditions, ObservedGeneration: 1, ReadyReplicas: ptr.To[int32](1), ConnectionCount: connections, ConsumerCount: connections,
			URL: "http://" + name + "-feed-server.aurora.svc"}}
}

func consumer(name string, conditions ...metav1.Condition) v1alpha1.FeedConsumer {
	return v1alpha1.FeedConsumer{ObjectMeta: object(name),
		Spec: v1alpha1.FeedConsumerSpec{FeedRef: v1alpha1.LocalReference{Name: "everything"}, Delivery: v1alpha1.Delivery{Type: v1alpha1.DeliveryNATS}},
		Status: v1alpha1.FeedConsumerStatus{Conditions: conditions, Lag: &v1alpha1.ConsumerLag{MessageCount: ptr.To[int64](7), Seconds: ptr.To[int64](12)}, GapCount: ptr.To[int64](1),
			Dropped: []v1alpha1.ConsumerDropped{{Reason: "Lag", Count: 3}}, ObservedGeneration: 1}}
}

// readSite is one whose archive was read.
func readSite() v1alpha1.Site {
	s := site(allOfSite...)
	ended := metav1.NewTime(now.Add(-8 * 24 * time.Hour))
	s.Status.Archive = &v1alpha1.ArchiveState{
		LastPass: &v1alpha1.ArchivePass{StartTime: metav1.NewTime(now.Add(-9 * 24 * time.Hour)), CompletionTime: &ended, ObjectCount: 98765},
		Pass:     &v1alpha1.ArchivePass{StartTime: metav1.NewTime(now.Add(-2 * 24 * time.Hour)), Instrument: "mag-1", Day: "2026-11-18", ObjectCount: 4711},
	}
	return s
}

func damagedSite() v1alpha1.Site {
	s := readSite()
	s.Status.Archive.DamagedCount, s.Status.Archive.MissingCount, s.Status.Archive.Pass = 1, 1, nil
	return s
}

// pulledSite waits for one reader that lacks an object, and for one that never confirmed anything.
func pulledSite() v1alpha1.Site {
	s := site(allOfSite...)
	s.Status.PulledBy = []v1alpha1.PullerStatus{
		{Reader: "hub", ConfirmedTime: lately, ComparedTime: ptr.To(metav1.NewTime(now.Add(-48 * time.Hour))), OwedObjectCount: ptr.To[int64](1)}, {Reader: "museum"}}
	return s
}

// mirrors are partners: one is given something, one has not been tried and one cannot be reached.
func mirrors() []v1alpha1.MirrorPartner {
	mirror := func(name string, conditions ...metav1.Condition) v1alpha1.MirrorPartner {
		return v1alpha1.MirrorPartner{ObjectMeta: object(name), Spec: v1alpha1.MirrorPartnerSpec{SiteRef: v1alpha1.LocalReference{Name: "demo"}, Direction: v1alpha1.MirrorPush, Protocol: v1alpha1.MirrorProtocolRsync},
			Status: v1alpha1.MirrorPartnerStatus{Conditions: append(slices.Clone(allOfGateway), conditions...)}}
	}
	moves := mirror("university", is(v1alpha1.ConditionReachable, "True", "Reachable", "it answered"), is(v1alpha1.ConditionSynced, "True", "Complete", "all is there"),
		is(v1alpha1.ConditionOriginWaits, "False", v1alpha1.ReasonNotAwaited, "Site \"thule\" does not know who pulls"))
	moves.Status.Owed = &v1alpha1.MirrorOwed{ObjectCount: 900, Bytes: 900 << 20}
	moves.Status.Progress = &v1alpha1.MirrorProgress{Run: "r", ObjectCount: 100, TotalObjectCount: 1000, BytesPerSecond: 5 << 20, EndTime: ptr.To(metav1.NewTime(now.Add(3 * time.Minute)))}
	moves.Status.VerifiedToTime, moves.Status.NextRunTime = ptr.To(metav1.NewTime(now.Add(-24*time.Hour))), ptr.To(metav1.NewTime(now.Add(time.Hour)))
	never := mirror("young", is(v1alpha1.ConditionReachable, "Unknown", "NotRun", "no run has reported yet"), is(v1alpha1.ConditionSynced, "Unknown", "NotRun", "no run has ended yet"),
		is(v1alpha1.ConditionOriginWaits, "False", v1alpha1.ReasonConfirmationRefused, "Site \"thule\" does not take what is confirmed here"))
	down := mirror("down", is(v1alpha1.ConditionReachable, "False", "HostKeyMismatch", "the host shows another key than known_hosts has: compare it with the partner"),
		is(v1alpha1.ConditionSynced, "False", "HostKeyMismatch", "run \"down-mirror-1\" owes 3 objects"))
	down.Status.Owed = &v1alpha1.MirrorOwed{ObjectCount: 3, Bytes: 300}
	return []v1alpha1.MirrorPartner{down, moves, never}
}

func TestPrint(t *testing.T) {
	storeAway := is(v1alpha1.ConditionObjectStoreReachable, "False", "Unreachable", "https://s3.aurora.svc:9000 does not answer: see whether its pods run")
	siteWaits := is(v1alpha1.ConditionReady, "False", "Unreachable", "the object store does not answer")
	waits := is(v1alpha1.ConditionReady, "False", "SiteNotReady", "Site demo is not ready: see kubectl describe site demo")
	many := []v1alpha1.Instrument{}
	for n := range 8 {
		many = append(many, anInstrument(fmt.Sprintf("mag-%d", n), lately, yes(v1alpha1.ConditionAccepted), waits, is(v1alpha1.ConditionDataFlowing, "Unknown", "NoReport", "no gateway has reported")))
	}
	for name, r := range map[string]Report{
		"nothing":       Summarize(Resources{}, "aurora", now),
		"fine":          of([]v1alpha1.Site{site(allOfSite...)}, []v1alpha1.IngestGateway{gateway(3, 12, allOfGateway...)}, []v1alpha1.Instrument{anInstrument("mag-1", lately, allOfInstrument...)}, "aurora"),
		"no-operator":   of([]v1alpha1.Site{site()}, []v1alpha1.IngestGateway{gateway(0, 0)}, []v1alpha1.Instrument{anInstrument("mag-1", nil)}, "aurora"),
		"store-away":    of([]v1alpha1.Site{site(yes(v1alpha1.ConditionAccepted), storeAway, yes(v1alpha1.ConditionJetStreamReachable), siteWaits)}, []v1alpha1.IngestGateway{gateway(3, 12, yes(v1alpha1.ConditionAccepted), waits)}, many, ""),
		"pods-starting": of([]v1alpha1.Site{site(allOfSite...)}, []v1alpha1.IngestGateway{gateway(1, 10, yes(v1alpha1.ConditionAccepted), is(v1alpha1.ConditionReady, "False", "Progressing", "1 of 3 pods are ready"))}, nil, "aurora"),
		"silent": of([]v1alpha1.Site{site(append(allOfSite[:3:3], is(v1alpha1.ConditionDurable, "False", "Flushed", "a power cut may take the last minutes: set sync_interval: always in NATS"), allOfSite[4])...)}, []v1alpha1.IngestGateway{gateway(3, 12, allOfGateway...)}, []v1alpha1.Instrument{
			anInstrument("mag-1", lately, yes(v1alpha1.ConditionAccepted), yes(v1alpha1.ConditionReady), is(v1alpha1.ConditionDataFlowing, "False", "Overdue", "nothing for 10m0s, due every 1s: look after the instrument or its link")),
			anInstrument("cam-1", nil, yes(v1alpha1.ConditionAccepted), yes(v1alpha1.ConditionReady), is(v1alpha1.ConditionDataFlowing, "False", "NotObserving", "in maintenance")),
			anInstrument("old-1", nil, yes(v1alpha1.ConditionAccepted), is(v1alpha1.ConditionReady, "False", "Retired", "retired"), is(v1alpha1.ConditionDataFlowing, "False", "NotObserving", "retired")),
			anInstrument("new-1", nil, is(v1alpha1.ConditionAccepted, "False", "Conflict", "port 30102 is held by mag-1: choose another"), is(v1alpha1.ConditionReady, "False", "Conflict", "port 30102 is held by mag-1"), is(v1alpha1.ConditionDataFlowing, "Unknown", "NotAccepted", "no data is due until the Instrument is accepted")),
		}, "aurora"),
		"damaged": of([]v1alpha1.Site{damagedSite()}, []v1alpha1.IngestGateway{gateway(3, 12, allOfGateway...)}, []v1alpha1.Instrument{
			anInstrument("cam-1", lately, append(allOfInstrument[:3:3], is(v1alpha1.ConditionArchiveIntact, "False", "Damaged", "1 of its objects in the store are not what was received"))...),
			anInstrument("mag-1", lately, append(allOfInstrument[:2:2], is(v1alpha1.ConditionDataFlowing, "False", "Overdue", "nothing since 02:50:00"))...),
			anInstrument("mag-2", lately, append(allOfInstrument[:2:2], is(v1alpha1.ConditionDataFlowing, "False", "Overdue", "nothing since 01:10:00"))...),
		}, "aurora"),
		"archive-read": of([]v1alpha1.Site{readSite()}, []v1alpha1.IngestGateway{gateway(3, 12, allOfGateway...)}, []v1alpha1.Instrument{anInstrument("mag-1", lately, allOfInstrument...)}, "aurora"),
		"feeds": Summarize(Resources{Sites: []v1alpha1.Site{site(allOfSite...)}, Gateways: []v1alpha1.IngestGateway{gateway(3, 12, allOfGateway...)},
			FeedServers: []v1alpha1.FeedServer{feedServer("internal", nil, yes(v1alpha1.ConditionAccepted), is(v1alpha1.ConditionReady, "False", "Progressing", "1 of 2 feed servers are ready")),
				feedServer("public", ptr.To[int32](7), allOfGateway...)},
			Instruments: []v1alpha1.Instrument{anInstrument("mag-1", lately, allOfInstrument...)}, Feeds: []v1alpha1.Feed{feed(allOfGateway...)},
			Consumers: []v1alpha1.FeedConsumer{
				consumer("display", append(allOfGateway[:2:2], is(v1alpha1.ConditionKeepingUp, "Unknown", "Idle", "nobody asks"))...),
				consumer("model", append(allOfGateway[:2:2], is(v1alpha1.ConditionKeepingUp, "False", "Overrun", "a gap record was written in the last ten minutes"))...),
			}}, "aurora", now),
		"mirrors": Summarize(Resources{Sites: []v1alpha1.Site{pulledSite()}, Gateways: []v1alpha1.IngestGateway{gateway(3, 12, allOfGateway...)},
			Instruments: []v1alpha1.Instrument{anInstrument("mag-1", lately, allOfInstrument...)}, Mirrors: mirrors()}, "aurora", now),
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			r.print(&out)
			golden(t, "testdata/"+name+".txt", out.String())
			if r.Fine != (name == "fine" || name == "archive-read") || errors.Is(r.verdict(), ErrProblems) == r.Fine {
				t.Errorf("fine is %v, the verdict %v", r.Fine, r.verdict())
			}
		})
	}
}

var update = flag.Bool("update", false, "write golden files anew")

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got; make golden rewrites it):\n%s", file, diff)
	}
}

// TestChangeNotSeen: an operator that stopped is no fine status.
func TestChangeNotSeen(t *testing.T) {
	s := site(allOfSite...)
	s.Generation = 2
	r := Summarize(Resources{Sites: []v1alpha1.Site{s}}, "aurora", now)
	if r.Fine || len(r.Problems) != 1 || r.Problems[0].Reason != "NotObserved" {
		t.Errorf("problems: %+v", r.Problems)
	}
}

func runStatus(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd := Command()
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

// TestStatusOfACluster asks a real API server.
func TestStatusOfACluster(t *testing.T) {
	cluster := kubetest.Start(t)
	at := []string{"--kubeconfig", cluster.Kubeconfig}
	if out, err := runStatus(t, append(at, "-n", "aurora")...); !errors.Is(err, ErrProblems) || !strings.Contains(out, "No Site in namespace aurora") {
		t.Errorf("of an empty namespace: %v\n%s", err, out)
	}
	s, g, i := site(), gateway(0, 0), anInstrument("mag-1", nil)
	cluster.Create(t, &s, &g, &i)
	out, err := runStatus(t, append(at, "-n", "aurora")...)
	if !errors.Is(err, ErrProblems) || !strings.Contains(out, "does an operator run") {
		t.Errorf("without an operator: %v\n%s", err, out)
	}
	s.Status, g.Status, i.Status = site(allOfSite...).Status, gateway(3, 12, allOfGateway...).Status, anInstrument("", lately, allOfInstrument...).Status
	for _, o := range []client.Object{&s, &g, &i} {
		if err := cluster.Status().Update(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	out, err = runStatus(t, append(at, "-n", "aurora", "--site", "demo")...)
	if err != nil || !strings.Contains(out, "All is well.") || !strings.Contains(out, "telemetry 192.0.2.1:30102") {
		t.Errorf("%v\n%s", err, out)
	}
	out, err = runStatus(t, append(at, "-A", "-o", "json")...)
	var r Report
	if err != nil || json.Unmarshal([]byte(out), &r) != nil || !r.Fine || len(r.Sites) != 1 || len(r.Gateways) != 1 || len(r.Instruments) != 1 {
		t.Errorf("%v\n%s", err, out)
	}
	watched(t, cluster, &i, at)
	if _, err := runStatus(t, append(at, "-n", "aurora", "--site", "other")...); err == nil || !strings.Contains(err.Error(), `no Site "other"`) {
		t.Errorf("of another Site: %v", err)
	}
	if out, err := runStatus(t, append(at, "-n", "default")...); !errors.Is(err, ErrProblems) || !strings.Contains(out, "No Site") {
		t.Errorf("of another namespace: %v\n%s", err, out)
	}
}

// TestUnreadable: objects that Go cannot decode hide no others, and the report says of each why it cannot be read, also where
// only one Site is asked for and where the Site is not known.
func TestUnreadable(t *testing.T) {
	cluster := kubetest.Start(t)
	s, g, i := site(), gateway(0, 0), anInstrument("mag-1", nil)
	cluster.Create(t, &s, &g, &i)
	s.Status, g.Status, i.Status = site(allOfSite...).Status, gateway(3, 12, allOfGateway...).Status, anInstrument("", lately, allOfInstrument...).Status
	for _, o := range []client.Object{&s, &g, &i} {
		if err := cluster.Status().Update(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	at := []string{"--kubeconfig", cluster.Kubeconfig, "-n", "aurora", "--site", "demo"}
	if out, err := runStatus(t, at...); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	testenv.ApplyLoosened(t, cluster.Config, "instruments", []string{"forward", "endTime"}, `
apiVersion: substorm.dev/v1alpha1
kind: Instrument
metadata: {name: camera, namespace: aurora}
spec:
  siteRef: {name: demo}
  type: AllSkyCamera
  listeners: [{name: tcp, protocol: TCP, port: 30101}]
  forward: {address: "192.0.2.9:5000", protocol: TCP, endTime: "2027-01-01T00:00:00+99:99"}
`)
	testenv.ApplyLoosened(t, cluster.Config, "feeds", []string{"siteRef"}, `
apiVersion: substorm.dev/v1alpha1
kind: Feed
metadata: {name: everything, namespace: aurora}
spec: {siteRef: demo}
`)
	out, err := runStatus(t, at...)
	if !errors.Is(err, ErrProblems) {
		t.Errorf("the verdict is %v", err)
	}
	for _, want := range []string{"mag-1", "telemetry 192.0.2.1:30102", "in its cadence", "! instrument camera: Accepted is Unknown (Unreadable)", "spec.forward: ", "+99:99",
		"! feed everything: Accepted is Unknown (Unreadable)", "spec.siteRef: "} {
		if !strings.Contains(out, want) {
			t.Errorf("the report does not say %q:\n%s", want, out)
		}
	}
	if strings.Contains(out, "does an operator run") {
		t.Errorf("the report asks for an operator, which may run:\n%s", out)
	}
}

// watched follows the Site while an Instrument loses its data, and finds it again.
func watched(t *testing.T, cluster *kubetest.Cluster, i *v1alpha1.Instrument, at []string) {
	t.Helper()
	flowing := func(status metav1.ConditionStatus) {
		t.Helper()
		i.Status.Conditions = append(slices.Clone(allOfInstrument[:2]), is(v1alpha1.ConditionDataFlowing, status, "Tested", "a test says so"))
		if err := cluster.Status().Update(t.Context(), i); err != nil {
			t.Fatal(err)
		}
	}
	begin := func(args ...string) (*bufio.Reader, func()) {
		ctx, interrupt := context.WithCancel(t.Context())
		in, out := io.Pipe()
		cmd := Command()
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cmd.SetOut(out)
		cmd.SetArgs(slices.Concat(at, []string{"-n", "aurora", "--watch"}, args))
		ended := make(chan error, 1)
		go func() {
			err := cmd.ExecuteContext(ctx)
			ended <- err
			_ = out.CloseWithError(err)
		}()
		return bufio.NewReader(in), func() {
			t.Helper()
			interrupt()
			go func() { _, _ = io.Copy(io.Discard, in) }() // it may be writing
			if err := <-ended; usage.ExitCode(err) != 130 {
				t.Errorf("interrupted: %v, exit code %d", err, usage.ExitCode(err))
			}
		}
	}
	lines, interrupt := begin("-o", "json")
	before := ""
	for n, want := range []metav1.ConditionStatus{metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionTrue} {
		if n > 0 {
			flowing(want)
		}
		// A slow machine may also change why there are no figures.
		for seen := metav1.ConditionStatus(""); seen != want; {
			line, err := lines.ReadString('\n')
			var r Report
			if err := errors.Join(err, json.Unmarshal([]byte(line), &r)); err != nil {
				t.Fatal(err)
			}
			if len(r.Instruments) != 1 || r.Fine != (r.Instruments[0].Flowing == metav1.ConditionTrue) || line == before {
				t.Fatalf("want %s and something new: %s", want, line)
			}
			seen, before = r.Instruments[0].Flowing, line
		}
	}
	interrupt()

	lines, interrupt = begin()
	said := ""
	until := func(want string) {
		t.Helper()
		for line := ""; !strings.Contains(line, want); said += line {
			var err error
			if line, err = lines.ReadString('\n'); err != nil {
				t.Fatalf("%v; %q does not come:\n%s", err, want, said)
			}
		}
	}
	until("All is well.")
	flowing(metav1.ConditionFalse)
	until("a test says so")
	interrupt()
	reports := strings.Split(said, "SITE  CODE")
	for i := range reports[1:] { // each ends with the time of the next
		reports[i+1] = strings.Join(slices.DeleteFunc(strings.Split(reports[i+1], "\n"), func(line string) bool {
			_, err := time.Parse(time.RFC3339, line)
			return err == nil
		}), "\n")
	}
	if len(reports) < 3 || len(slices.Compact(slices.Clone(reports))) != len(reports) || strings.Contains(said, clearScreen) {
		t.Errorf("said %s", said)
	}
	flowing(metav1.ConditionTrue)
}
