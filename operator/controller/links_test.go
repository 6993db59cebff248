// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"log/slog"
	"runtime"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/substorm/substorm/operator/api/v1alpha1"
)

// wakes reports each time that a controller is woken.
type wakes struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
	added chan reconcile.Request
}

func (w wakes) Add(r reconcile.Request) { w.added <- r }

// A link whose Secrets cannot be read reports that once. connect keeps it, however soon the link reports.
func TestConnectKeepsWhatTheLinkFinds(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(16)) // the link runs beside connect, also on one core
	key := types.NamespacedName{Namespace: "field", Name: "hub"}
	amiss := no(v1alpha1.ReasonSecretIncomplete, "the Secret cannot be read")
	for round := range 20000 {
		sites := wakes{added: make(chan reconcile.Request, 2)}
		l := newLinks(&wakers{sites: waker{queue: sites}}, slog.New(slog.DiscardHandler), time.Now)
		l.connect(key, wanted{hash: "first", storeAmiss: &amiss, jetStreamAmiss: &amiss})
		<-sites.added // for the object store and for JetStream
		<-sites.added
		b, _, _, _ := l.facts(key).snapshot()
		<-l.disconnect(key)
		if b.ObjectStore == nil || b.JetStream == nil {
			t.Fatalf("round %d: object store %v, JetStream %v: what the link found is lost", round, b.ObjectStore, b.JetStream)
		}
	}
}
