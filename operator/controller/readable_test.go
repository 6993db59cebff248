// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/readable"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/bus"
)

// TestUnreadableObject: an Instrument that was stored past validation, and that Go cannot decode, affects itself alone: others are
// programmed, also by an operator that starts, its entry in the registry stays, and log, metric and the Site's condition name it.
func TestUnreadableObject(t *testing.T) {
	w := newWorld(t)
	first, _, ports := w.ports()
	w.start()
	w.applySite("hub", "hub")
	w.applyPool("pool", ports)
	w.applyInstrument("camera", first, "")
	g := w.gateway("pool", "pool-0")
	before := g.awaitPort("camera", first)

	testenv.ApplyLoosened(t, api.Config, "instruments", []string{"archive", "repeatWindow"}, fmt.Sprintf(`
apiVersion: substorm.dev/v1alpha1
kind: Instrument
metadata: {name: camera, namespace: %s}
spec: {siteRef: {name: hub}, type: AllSkyCamera, listeners: [{name: tcp, protocol: TCP, port: %d}], archive: {repeatWindow: 99999999999999999999m}}
`, w.namespace, first))
	if err := w.List(t.Context(), &v1alpha1.InstrumentList{}, client.InNamespace(w.namespace)); err == nil {
		t.Fatal("a client lists the object: this test shows nothing")
	}
	var log bytes.Buffer
	tolerant, err := client.New(readable.Config(api.Config, scheme, slog.New(slog.NewTextHandler(&log, nil))), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	var list v1alpha1.InstrumentList
	if err := tolerant.List(t.Context(), &list, client.InNamespace(w.namespace)); err != nil || len(list.Items) != 1 || list.Items[0].Spec.SiteRef.Name != "hub" {
		t.Errorf("listed %+v: %v", list.Items, err)
	}
	if !strings.Contains(log.String(), "name=camera") || !strings.Contains(log.String(), "repeatWindow") && !strings.Contains(log.String(), "99999999999999999999m") {
		t.Errorf("the log does not name the object and what is wrong: %s", &log)
	}

	names := func() {
		t.Helper()
		c := w.awaits("Site", "hub", "ObjectsUnreadable", "True/Unreadable")
		says(t, c, `Instrument "camera"`, "99999999999999999999m", "correct")
		w.hasMetric("substorm_site_object_unreadable", "camera", 1)
	}
	names() // received by the watch
	w.applyInstrument("second", first+1, "")
	g.awaitPort("second", first+1)
	w.stop()
	w.start()
	w.applyInstrument("third", first+2, "")
	g.awaitPort("third", first+2)
	names() // and listed
	if after, err := g.entry("camera"); err != nil || after.Generation != before.Generation || len(after.Listeners) != 1 {
		t.Errorf("the entry of the Instrument that cannot be read is %+v: %v; before it was %+v", after, err, before)
	}

	w.applyInstrument("camera", first, ", archive: {repeatWindow: 5h}")
	eventually(t, "the corrected Instrument is programmed, and the condition goes", func() error {
		after, err := g.entry("camera")
		if err == nil && after.RepeatWindowMillis != 5*3600*1000 {
			err = fmt.Errorf("it says %d ms", after.RepeatWindowMillis)
		}
		if c := find(conditionsOf(w.object("Site", "hub")), "ObjectsUnreadable"); c != nil {
			err = errors.Join(err, errors.New(c.Message))
		}
		return err
	})
}

// TestUnreadablePoolKeepsItsCredentials: the pods of a pool that cannot be read run on with credentials that are renewed,
// and the metric says until when they are valid, also after the operator was restarted.
func TestUnreadablePoolKeepsItsCredentials(t *testing.T) {
	w := newWorld(t)
	w.start()
	w.applySite("hub", "hub")
	w.applyPool("pool", ", service: {type: ClusterIP}")
	h := holders[0]
	before := w.awaitCredentials(h, "credentials", func(c *v1alpha1.CredentialsStatus) bool { return c.ExpirationTime != nil })
	testenv.ApplyLoosened(t, api.Config, "ingestgateways", []string{"drainTimeout"}, fmt.Sprintf(`
apiVersion: substorm.dev/v1alpha1
kind: IngestGateway
metadata: {name: pool, namespace: %s}
spec: {siteRef: {name: hub}, service: {type: ClusterIP}, drainTimeout: 99999999999999999999m}
`, w.namespace))
	w.stop()
	w.age(h.secret, time.Now().Add(bus.CredentialsLifetime/2))
	w.start()
	eventually(t, "renewed credentials, which the metric shows", func() error {
		claims := w.claims(h.secret)
		if claims.Subject != before.User || time.Until(time.Unix(claims.Expires, 0)) < bus.CredentialsLifetime-time.Hour {
			return fmt.Errorf("those of %s until %d, before %s", claims.Subject, claims.Expires, before.User)
		}
		if at := w.credentialsExpiry(h); at != float64(claims.Expires) {
			return fmt.Errorf("the metric says %v, the token %d", at, claims.Expires)
		}
		return nil
	})
}

// TestTokenOfAnUnreadableConsumer: the token of a FeedConsumer that cannot be read stays in the registry, until its Secret
// is deleted.
func TestTokenOfAnUnreadableConsumer(t *testing.T) {
	w := newFeedWorld(t)
	w.applyFeed("all", "")
	w.applyConsumer("viewer", "all", "WebSocket", "")
	server := w.feedServer("feed-0")
	token := string(w.awaitSecret("viewer-consumer", bus.KeyToken).Data[bus.KeyToken])
	takes := func(want bool) {
		t.Helper()
		eventually(t, fmt.Sprintf("the token is taken: %v", want), func() error {
			e, err := server.consumerEntry("viewer")
			if err == nil && (len(e.Tokens) == 0 || slices.ContainsFunc(e.Tokens, func(h wire.TokenHash) bool { return h.Matches(token) }) != want) {
				err = fmt.Errorf("the entry is %+v", e)
			}
			return err
		})
	}
	takes(true)
	testenv.ApplyLoosened(t, api.Config, "feedconsumers", []string{"flow", "maxLag"}, fmt.Sprintf(`
apiVersion: substorm.dev/v1alpha1
kind: FeedConsumer
metadata: {name: viewer, namespace: %s}
spec: {feedRef: {name: all}, delivery: {type: WebSocket}, flow: {maxLag: 99999999999999999999m}}
`, w.namespace))
	w.awaits("Site", "hub", "ObjectsUnreadable", "True/Unreadable", `FeedConsumer "viewer"`)
	takes(true)
	w.remove(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "viewer-consumer"}})
	takes(false)
}
