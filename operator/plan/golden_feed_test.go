// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"maps"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan"
	"github.com/substorm/substorm/operator/plan/accept"
	"github.com/substorm/substorm/operator/plan/bus"
	"github.com/substorm/substorm/operator/plan/entries"
	"github.com/substorm/substorm/operator/plan/feeds"
	"github.com/substorm/substorm/operator/plan/finding"
	"github.com/substorm/substorm/operator/plan/observed"
	"github.com/substorm/substorm/operator/plan/workload"
)

// feedWorld is what a test's .in.yaml holds of Feeds and FeedConsumers.
type feedWorld struct {
	Deployments []appsv1.Deployment `json:"deployments"`
	// Found streams by name, figures by Feed.
	Found   map[string]accept.StreamFound `json:"found"`
	Figures map[string]feeds.FeedFigures  `json:"figures"`
	// Durables are what was found of them, by FeedConsumer.
	Durables map[string]finding.Finding `json:"durables"`
	// Removed says what was found of the streams of Feeds that are being deleted, and Doomed
	// are those of Feeds that are gone, by Site. Begun is when the operator began.
	Removed map[string]finding.Finding `json:"removed"`
	Doomed  map[string][]string        `json:"doomed"`
	Begun   time.Time                  `json:"begun"`
	// Positions of FeedConsumers as they were found, and as they are kept.
	Positions     map[string]wire.PositionCursor `json:"positions"`
	KeptPositions map[string]bus.KeptPosition    `json:"keptPositions"`
	// SecretOwners say whose the Secrets are, by their names.
	SecretOwners      map[string]string                    `json:"secretOwners"`
	FeedServerReports []observed.FeedServerReport          `json:"feedServerReports"`
	ConsumerReports   map[string][]observed.ConsumerReport `json:"consumerReports"`
}

// feedsPlanned is what a test's .out.yaml holds of Feeds and FeedConsumers.
type feedsPlanned struct {
	Feeds           map[string]v1alpha1.FeedStatus         `json:"feeds,omitempty"`
	FeedConsumers   map[string]v1alpha1.FeedConsumerStatus `json:"feedConsumers,omitempty"`
	Bus             map[string]bus.Plan                    `json:"bus,omitempty"`
	Positions       map[string]bus.PositionChange          `json:"positions,omitempty"`
	Deletions       map[string]plan.Deletion               `json:"deletions,omitempty"`
	ConsumerUsers   map[string]*bus.JetStreamUser          `json:"consumerUsers,omitempty"`
	ConsumerSecrets map[string]map[string]string           `json:"consumerSecrets,omitempty"`
	FeedServers     map[string]v1alpha1.FeedServerStatus   `json:"feedServers,omitempty"`
	// FeedServerObjects by FeedServer.
	FeedServerObjects map[string][]workload.Object `json:"feedServerObjects,omitempty"`
	Archivist         []workload.Object            `json:"archivist,omitempty"`
}

func newFeedsPlanned() feedsPlanned {
	return feedsPlanned{FeedServers: map[string]v1alpha1.FeedServerStatus{}, FeedServerObjects: map[string][]workload.Object{}, Feeds: map[string]v1alpha1.FeedStatus{}, FeedConsumers: map[string]v1alpha1.FeedConsumerStatus{},
		Bus: map[string]bus.Plan{}, Positions: map[string]bus.PositionChange{}, Deletions: map[string]plan.Deletion{}, ConsumerUsers: map[string]*bus.JetStreamUser{}, ConsumerSecrets: map[string]map[string]string{}}
}

func (p *feedsPlanned) add(t *testing.T, part string, from feedsPlanned) {
	t.Helper()
	switch part {
	case "feeds":
		p.Feeds = from.Feeds
	case "feedConsumers":
		p.FeedConsumers = from.FeedConsumers
	case "bus":
		p.Bus = from.Bus
	case "deletions":
		p.Deletions = from.Deletions
	case "positions":
		p.Positions = from.Positions
	case "consumerUsers":
		p.ConsumerUsers = from.ConsumerUsers
	case "consumerSecrets":
		p.ConsumerSecrets = from.ConsumerSecrets
	case "feedServers":
		p.FeedServers = from.FeedServers
	case "feedServerObjects":
		p.FeedServerObjects = from.FeedServerObjects
	case "archivist":
		p.Archivist = from.Archivist
	default:
		t.Fatalf("show: there is no part %q", part)
	}
}

// planServers plans the FeedServers of a Site, which is nil where it does not exist.
func (w world) planServers(out *planned, site *v1alpha1.Site, servers []v1alpha1.FeedServer, accepted finding.Finding, secrets workload.Secrets) {
	for i := range servers {
		server := &servers[i]
		view := plan.FeedServerView{Now: w.Now, Server: server, Site: site, SiteAccepted: accepted, Secrets: secrets, Services: w.Services,
			Bus: w.Bus[server.Spec.SiteRef.Name], Reports: w.FeedServerReports, Consumers: w.ConsumerReports, Scaling: w.Scaling["feed-server/"+server.Name]}
		view.Deployment = w.deployment(workload.FeedServerName(server.Name))
		view.Pods = keep(w.Pods, func(p corev1.Pod) bool {
			return p.Labels[workload.LabelName] == workload.FeedServerProgram && p.Labels[workload.LabelInstance] == server.Name
		})
		program := workload.FeedServerOf(site, server)
		program.Image, program.Secrets = "substorm/feed-server:dev", secrets
		if site != nil && site.Spec.JetStream.AccountKeySecretRef != nil {
			user := bus.FeedServerUser(site, server.Name)
			view.Credentials = w.credentialsOf(out, "feed-server/"+server.Name, user, server.Annotations)
			out.Users["feed-server/"+server.Name] = user
			program.Permissions = user.Hash("AACCOUNT", "AACCOUNT")
		}
		status, wait := plan.FeedServerStatus(view)
		out.FeedServers[server.Name] = status
		out.requeue("feedServers", server.Name, wait)
		if plan.FeedServerAccepted(view).OK() {
			out.FeedServerObjects[server.Name] = workload.FeedServer{SiteProgram: program, Server: server, Replicas: view.Replicas(), Tight: view.Tight(), Addressed: accept.AddressedServer(servers)}.Objects()
		}
	}
}

// archivist is rolled out where a test does not say what became of its Deployment.
func (w world) archivist(site *v1alpha1.Site) (view plan.SiteProgramView) {
	if site == nil {
		return view
	}
	view.Pods = keep(w.Pods, func(p corev1.Pod) bool { return p.Labels[workload.LabelName] == workload.ArchivistProgram })
	if view.Deployment = w.deployment(workload.ArchivistName(site)); view.Deployment == nil {
		two := int32(2)
		view.Deployment = &appsv1.Deployment{
			Spec: appsv1.DeploymentSpec{Replicas: &two}, Status: appsv1.DeploymentStatus{ReadyReplicas: two, UpdatedReplicas: two},
		}
	}
	return view
}

func (w world) deployment(name string) *appsv1.Deployment {
	for i := range w.Deployments {
		if w.Deployments[i].Name == name {
			return &w.Deployments[i]
		}
	}
	return nil
}

func (w world) planFeeds(t *testing.T, out *planned, in *entries.Input, servers []v1alpha1.FeedServer, site string, accepted finding.Finding, registry observed.RegistryState) {
	in.Feeds = keep(load[v1alpha1.Feed](t, "feeds", w.Feeds), func(f v1alpha1.Feed) bool { return f.Spec.SiteRef.Name == site })
	w.planDeletions(out, in, site, accepted)
	in.Feeds = keep(in.Feeds, func(f v1alpha1.Feed) bool { return f.DeletionTimestamp == nil })
	in.Consumers = load[v1alpha1.FeedConsumer](t, "feedconsumers", w.FeedConsumers)
	in.Secrets = w.owned(in.Secrets)
	listed := accept.Listed(in.Instruments, in.Verdicts, registry.Entries)
	in.FeedsAre = accept.Feeds(in.Site, accepted, in.Feeds, in.Instruments, listed, w.Found)
	may := accept.AccessOf(in.Instruments, listed, registry)
	in.ConsumersAre = accept.Consumers(in.Site, in.Feeds, in.FeedsAre, in.Consumers, servers, may, w.Now)
	for i := range in.Feeds {
		w.planFeed(out, in, &in.Feeds[i], registry)
	}
	for i := range in.Consumers {
		w.planConsumer(out, in, &in.Consumers[i], accept.ConsumersServer(servers), registry)
	}
	if in.Site == nil {
		return
	}
	archivist := workload.ArchivistOf(in.Site)
	archivist.Image, archivist.Secrets = "substorm/archivist:dev", in.Secrets
	if in.Site.Spec.JetStream.AccountKeySecretRef != nil {
		user := bus.ArchivistUser(in.Site)
		out.Users[workload.ArchivistProgram] = user
		archivist.Permissions = user.Hash("AACCOUNT", "AACCOUNT")
	}
	out.Archivist = workload.Archivist{SiteProgram: archivist}.Objects()
	streams := bus.MakePlan(in.Site, in.Feeds, in.FeedsAre, in.Consumers, in.ConsumersAre, durables(in.Consumers))
	streams.MayRead = bus.MayRead(streams, in.Feeds, in.Consumers, in.Instruments, may, w.Now)
	out.Bus[site] = streams
	out.Positions[site] = bus.Positions(streams, w.Positions, w.KeptPositions, w.Now)
}

func (w world) planDeletions(out *planned, in *entries.Input, site string, accepted finding.Finding) {
	clock := plan.DeletionClock{Now: w.Now, Begun: w.Begun}
	for i := range in.Feeds {
		f := &in.Feeds[i]
		view := plan.FeedDeletionView{DeletionClock: clock, Feed: f, Site: in.Site, Bus: w.Bus[site]}
		if found, looked := w.Removed[f.Name]; looked {
			view.Removed = &found
		}
		d := plan.FeedDeletion(view)
		out.Deletions["feed/"+f.Name] = d
		out.requeue("deletions", "feed/"+f.Name, d.Wait)
		if f.DeletionTimestamp != nil && d.Finalizer {
			out.Feeds[f.Name] = plan.FeedDeletionStatus(view, d)
		}
	}
	if in.Site != nil {
		d := plan.SiteDeletion(plan.SiteDeletionView{DeletionClock: clock, Site: in.Site, Feeds: in.Feeds, Accepted: accepted, Bus: w.Bus[site], Doomed: w.Doomed[site]})
		out.Deletions["site/"+in.Site.Name] = d
		out.requeue("deletions", "site/"+in.Site.Name, d.Wait)
	}
}

// owned says in the Secrets whose they are.
func (w world) owned(secrets workload.Secrets) workload.Secrets {
	all := maps.Clone(secrets)
	for name, uid := range w.SecretOwners {
		is := all[name].DeepCopy()
		controls := true
		is.OwnerReferences = []metav1.OwnerReference{{UID: types.UID(uid), Controller: &controls}}
		all[name] = is
	}
	return all
}

func (w world) planFeed(out *planned, in *entries.Input, feed *v1alpha1.Feed, registry observed.RegistryState) {
	view := feeds.FeedView{Now: w.Now, Feed: feed, Site: in.Site, Verdict: in.FeedsAre[feed.Name], Bus: w.Bus[feed.Spec.SiteRef.Name],
		Consumers: map[string]time.Duration{}}
	if entry, exists := registry.Feeds[feed.Name]; exists {
		view.Entry = &entry
	}
	if figures, counted := w.Figures[feed.Name]; counted {
		view.Figures = &figures
	}
	if in.Site != nil {
		if found, looked := w.Found[wire.FeedStream(in.Site.Spec.Code, feed.Name)]; looked {
			view.Stream = &found
		}
	}
	for i := range in.Consumers {
		if c := &in.Consumers[i]; c.Spec.FeedRef.Name == feed.Name {
			view.Consumers[c.Name] = feeds.MergeConsumer(w.ConsumerReports[c.Name], w.FeedServerReports, w.Now).Lag
		}
	}
	status, wait := feeds.FeedStatus(view)
	out.Feeds[feed.Name] = status
	out.requeue("feeds", feed.Name, wait)
}

// durables are the names as the consumers' Secrets would have them.
func durables(consumers []v1alpha1.FeedConsumer) map[string]string {
	all := map[string]string{}
	for i := range consumers {
		all[consumers[i].Name] = wire.ConsumerDurable(consumers[i].Name, "0a1b2c3d4e")
	}
	return all
}

func (w world) planConsumer(out *planned, in *entries.Input, c *v1alpha1.FeedConsumer, server *v1alpha1.FeedServer, registry observed.RegistryState) {
	view := feeds.ConsumerView{Now: w.Now, Consumer: c, Server: server, Servers: w.FeedServerReports, Reports: w.ConsumerReports[c.Name]}
	verdict, known := in.ConsumersAre[c.Name]
	if !known {
		view.Verdict = accept.OrphanConsumer(c)
		out.planConsumerStatus(c.Name, view)
		return
	}
	view.Verdict, view.Site = verdict, in.Site
	if in.Site == nil {
		out.planConsumerStatus(c.Name, view)
		return
	}
	view.Bus = w.Bus[in.Site.Name]
	if entry, exists := registry.Consumers[c.Name]; exists {
		view.Entry = &entry
	}
	if found, looked := w.Durables[c.Name]; looked {
		view.Durables = &found
	}
	access := bus.ConsumerAccess{Site: in.Site, Consumer: c, Verdict: verdict, Durable: durables(in.Consumers)[c.Name], Server: server, Services: w.Services, CA: []byte("authority")}
	for i := range in.Feeds {
		if in.Feeds[i].Name == c.Spec.FeedRef.Name {
			access.Feed = &in.Feeds[i]
		}
	}
	view.URL = access.URL()
	if user := access.User(); user != nil && verdict.OK() {
		view.Credentials = w.credentialsOf(out, "consumer/"+c.Name, *user, c.Annotations)
	}
	out.planConsumerStatus(c.Name, view)
	if !verdict.OK() {
		return
	}
	if user := access.User(); user != nil {
		out.ConsumerUsers[c.Name] = user
	}
	out.ConsumerSecrets[c.Name] = map[string]string{}
	for key, value := range access.Data() {
		out.ConsumerSecrets[c.Name][key] = string(value)
	}
}

func (p *planned) planConsumerStatus(name string, view feeds.ConsumerView) {
	status, wait := feeds.ConsumerStatus(view)
	p.FeedConsumers[name] = status
	p.requeue("feedConsumers", name, wait)
}
