// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/substorm/substorm/operator/api/v1alpha1"
)

const (
	// narrow is a FeedServer whose only pod has little CPU. It believes the test which addresses clients have.
	narrow         = "narrow"
	narrowCamera   = "narrow-camera"
	narrowPort     = 30136
	narrowManifest = `apiVersion: substorm.dev/v1alpha1
kind: FeedServer
metadata: {name: narrow}
spec:
  siteRef: {name: demo}
  replicas: 1
  proxies: [10.0.0.0/8, 172.16.0.0/12, 192.168.0.0/16]
  podTemplate:
    resources:
      requests: {cpu: 10m, memory: 64Mi}
      limits: {cpu: 100m, memory: 256Mi}
`
)

// TestGivingWay: robots ask a pod for more than it has CPU for. They are asked to come later, people are served all the time, and
// GivingWay of the FeedServer says so. The pod is killed meanwhile, while no operator runs: the next one lets robots in at once, although
// no operator has read that, and an operator that starts does not take the killed pod's report for the current state.
func TestGivingWay(t *testing.T) {
	skipUnlessAll(t)
	l := theLab
	t.Cleanup(func() {
		l.kubectl(t, "scale", "deployment/substorm-operator", "--replicas=1")
		l.kubectl(t, "delete", "feedserver/"+narrow, "instrument/"+narrowCamera, "--ignore-not-found", "--timeout="+patienceText)
		l.kubectl(t, "wait", "pod", "-l", narrowLabels, "--for=delete", "--timeout="+patienceText)
	})
	l.apply(t, instrumentTCP(narrowCamera, narrowPort)+"  gatewayRef: {name: demo}\n  access: {live: Public, archive: Public}\n")
	l.apply(t, narrowManifest)
	l.waitReady(t, "instrument/"+narrowCamera, "feedserver/"+narrow)
	l.start(t, l.substorm, "send", "--quiet", "--to", join(l.nodeAddresses(t), narrowPort), writeObjects(t, 5, 16<<10)).succeeds(t)

	list := "/archive/" + narrowCamera + "/"
	pod, base := l.narrowPod(t)
	for _, path := range []string{list, "/atom/" + narrowCamera + ".xml", "/bundle/" + narrowCamera + ".tar", "/sitemap.xml"} {
		eventually(t, func() error { return answers(base + path) }) // the pod learns of Instruments and objects a moment after they are there
	}
	people := askAll(t, base, 3, "Mozilla/5.0 (X11; Linux x86_64)", "/", list, "/atom/"+narrowCamera+".xml")
	eventually(t, func() error { return people.answered(http.StatusOK, 20) })
	robots, bulk := askAll(t, base, 40, "crawler/1.0", list+"?format=json", "/sitemap.xml"), askAll(t, base, 1, "copy/1.0", "/bundle/"+narrowCamera+".tar")
	eventually(t, func() error {
		return l.givesWay(t, "programs that show no token are answered 503 at 1 of 1 pods", "CPU")
	})
	eventually(t, func() error { return robots.answered(http.StatusServiceUnavailable, 100) })
	eventually(t, func() error {
		return errors.Join(people.answered(http.StatusOK, 100), bulk.answered(http.StatusOK, 10))
	})
	people.end(t)
	if n := people.answers[http.StatusServiceUnavailable]; n > 0 {
		t.Errorf("%d people were to come later", n)
	}
	if err := l.givesWay(t); err != nil {
		t.Error(err)
	}

	l.kubectl(t, "scale", "deployment/substorm-operator", "--replicas=0")
	l.kubectl(t, "wait", "pod", "-l", "app.kubernetes.io/name=substorm", "--for=delete", "--timeout="+patienceText)
	bulk.end(t)
	robots.end(t)
	l.kubectl(t, "delete", "pod", pod, "--grace-period=0", "--force")
	eventually(t, func() error { _, _, err := l.findNarrowPod(pod); return err })
	_, base = l.narrowPod(t)
	eventually(t, func() error { // until it knows the Instrument
		err := answers(base + list + "?format=json")
		if err != nil && strings.Contains(err.Error(), fmt.Sprint(http.StatusServiceUnavailable)) {
			t.Fatalf("the pod has just been started: %v", err)
		}
		return err
	})
	again := askAll(t, base, 1, "crawler/1.0", list+"?format=json")
	eventually(t, func() error { return again.answered(http.StatusOK, 5) })
	again.end(t)
	if n := again.answers[http.StatusServiceUnavailable]; n > 0 {
		t.Errorf("%d robots were to come later: the pod has just been started", n)
	}
	if err := l.givesWay(t); err != nil { // no operator has looked
		t.Error(err)
	}
	l.kubectl(t, "scale", "deployment/substorm-operator", "--replicas=1")
	eventually(t, func() error {
		if err := l.givesWay(t); err == nil {
			return errors.New("GivingWay is still there")
		}
		return nil
	})
}

const narrowLabels = "app.kubernetes.io/name=feed-server,app.kubernetes.io/instance=" + narrow

// givesWay is nil once GivingWay of the FeedServer is True, and says all of this.
func (l *lab) givesWay(t testing.TB, all ...string) error {
	return l.serverTells(t, narrow, v1alpha1.ConditionGivingWay, v1alpha1.ReasonBudgetFull, all...)
}

// narrowPod waits for the pod, and returns where it is asked.
func (l *lab) narrowPod(t testing.TB) (name, base string) {
	t.Helper()
	eventually(t, func() (err error) { name, base, err = l.findNarrowPod(""); return err })
	return name, base
}

// findNarrowPod returns the pod that is ready and is not the one that is gone.
func (l *lab) findNarrowPod(gone string) (name, base string, err error) {
	ready, err := l.feedServers()
	for pod, address := range ready {
		if strings.HasPrefix(pod, narrow+"-") && pod != gone {
			return pod, "http://" + net.JoinHostPort(address, "8080"), err
		}
	}
	return "", "", errors.Join(err, errors.New("no pod of FeedServer narrow is ready"))
}

// answers is nil where a GET of url is answered 200.
func answers(url string) error {
	client := &http.Client{Timeout: time.Minute}
	resp, err := client.Get(url)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", url, resp.Status)
	}
	return nil
}

// askAll has clients ask one pod, each from an address of its own. A client that gives way asks again much earlier than the answer says.
func askAll(t *testing.T, base string, clients int, agent string, paths ...string) *crowd {
	t.Helper()
	return startCrowd(t, manner{clients: clients, bases: []string{base}, paths: paths, agent: agent, forwarded: true,
		later: http.StatusServiceUnavailable, seconds: 30, patience: time.Second})
}
