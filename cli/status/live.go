// SPDX-License-Identifier: Apache-2.0

package status

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/substorm/substorm/cli/backend"
	"github.com/substorm/substorm/cli/kube"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan"
	"github.com/substorm/substorm/operator/plan/finding"
	"github.com/substorm/substorm/operator/plan/instrument"
	"github.com/substorm/substorm/operator/plan/observed"
)

// livePatience is how long a Site's JetStream may take to tell its figures: who asks at night, while it is away, waits no
// longer for the rest of the report.
const livePatience = 5 * time.Second

// errAway: the operator says that JetStream is away, so it is not waited for.
var errAway = errors.New("the Site's JetStream is away, see JetStreamReachable")

// errUnreadable: what of the Site could not be read may be where its JetStream is.
var errUnreadable = errors.New("the Site cannot be read, see below")

// live reads what gateways report into the status buckets of Sites: statuses have these figures up to ten minutes later.
type live struct {
	cluster *kube.Cluster
	sites   map[string]*liveSite
}

type liveSite struct {
	backend *backend.Backend
	js      jetstream.JetStream
}

func newLive(cluster *kube.Cluster) *live { return &live{cluster, map[string]*liveSite{}} }

func (l *live) close() {
	for key, s := range l.sites {
		s.backend.Close()
		delete(l.sites, key)
	}
}

// refresh brings the figures of Instruments, FeedServers and MirrorPartners up to date, and says for each Site, as namespace/name, why it could not.
func (l *live) refresh(ctx context.Context, all *Resources, now time.Time) map[string]error {
	failed := map[string]error{}
	for i := range all.Sites {
		site := &all.Sites[i]
		if err := l.refreshSite(ctx, site, all, now); err != nil {
			failed[site.Namespace+"/"+site.Name] = err
		}
	}
	return failed
}

func (l *live) refreshSite(ctx context.Context, site *v1alpha1.Site, all *Resources, now time.Time) error {
	if finding.Unreadable(site) != "" {
		return errUnreadable
	}
	if condition(site.Status.Conditions, v1alpha1.ConditionJetStreamReachable).Status == metav1.ConditionFalse {
		return errAway
	}
	ctx, cancel := context.WithTimeout(ctx, livePatience)
	defer cancel()
	js, err := l.connect(ctx, site)
	if err != nil {
		return err
	}
	reports, err := readReports(ctx, js, site.Spec.Code)
	if err != nil {
		l.disconnect(site)
		return err
	}
	servers, said, err := readFeedReports(ctx, js, site.Spec.Code)
	if err != nil {
		l.disconnect(site)
		return err
	}
	if err := refreshMirrors(ctx, js, site, all.Mirrors, now); err != nil {
		l.disconnect(site)
		return err
	}
	for i := range all.FeedServers {
		if s := &all.FeedServers[i]; s.Namespace == site.Namespace && s.Spec.SiteRef.Name == site.Name {
			plan.FeedServerFigures(&s.Status, s.Name, servers, said, now)
		}
	}
	for i := range all.Instruments {
		if in := &all.Instruments[i]; in.Namespace == site.Namespace && in.Spec.SiteRef.Name == site.Name {
			refreshInstrument(&in.Status, reports[in.Name], now)
		}
	}
	return nil
}

func refreshInstrument(status *v1alpha1.InstrumentStatus, reports []observed.InstrumentReport, now time.Time) {
	if today := instrument.ReceivedToday(reports, now); today != nil {
		status.ReceivedToday = today
	}
	if last := instrument.LastReported(reports); status.LastReceivedTime == nil || last.After(status.LastReceivedTime.Time) {
		if !last.IsZero() {
			status.LastReceivedTime = new(metav1.NewTime(last))
		}
	}
}

func (l *live) connect(ctx context.Context, site *v1alpha1.Site) (jetstream.JetStream, error) {
	key := site.Namespace + "/" + site.Name
	if s := l.sites[key]; s != nil {
		return s.js, nil
	}
	b, err := backend.ReadJetStream(ctx, l.cluster, site)
	if err != nil {
		return nil, err
	}
	js, err := b.JetStream(ctx)
	if err != nil {
		b.Close()
		return nil, err
	}
	l.sites[key] = &liveSite{b, js}
	return js, nil
}

// disconnect makes the next refresh connect again, with the credentials of that time.
func (l *live) disconnect(site *v1alpha1.Site) {
	key := site.Namespace + "/" + site.Name
	if s := l.sites[key]; s != nil {
		s.backend.Close()
		delete(l.sites, key)
	}
}

// readReports returns what the pods of a Site's gateways last reported, by instrument.
func readReports(ctx context.Context, js jetstream.JetStream, code string) (map[string][]observed.InstrumentReport, error) {
	reports := map[string][]observed.InstrumentReport{}
	err := backend.Entries(ctx, js, wire.StatusBucket(code), wire.InstrumentStatusKey("*", "*"), func(e backend.Entry) error {
		instrument, pod, ok := wire.ParseStatusKey(e.Key)
		if !ok {
			return nil
		}
		status, err := wire.Decode[wire.InstrumentStatus](e.Data)
		if err != nil {
			return fmt.Errorf("report %s: %w", e.Key, err)
		}
		reports[instrument] = append(reports[instrument], observed.InstrumentReportOf(pod, status, e.Time))
		return nil
	})
	return reports, err
}
