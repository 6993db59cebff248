// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan"
	"github.com/substorm/substorm/operator/plan/bus"
)

// TestStandalone: what a process puts in place of what manifests say, what of them holds, and what is said of the rest.
func TestStandalone(t *testing.T) {
	own := &plan.Standalone{
		ObjectStore: v1alpha1.ObjectStore{Endpoint: "file:///data/objects", Bucket: "archive"},
		JetStream:   v1alpha1.JetStream{Servers: []string{"nats://embedded.invalid:4222"}, Durability: v1alpha1.DurabilitySynced, Replicas: 1},
		StreamBytes: 4 << 30,
		URL:         func(server *v1alpha1.FeedServer) string { return "http://127.0.0.1:8080/" + server.Name },
	}
	class := "fast"
	template := v1alpha1.PodTemplate{PriorityClassName: "high"}
	site := &v1alpha1.Site{Spec: v1alpha1.SiteSpec{Code: "hub", Title: "Hub",
		ObjectStore: v1alpha1.ObjectStore{Endpoint: "https://s3.example", Bucket: "theirs", TLS: &v1alpha1.TLS{}},
		JetStream: v1alpha1.JetStream{Servers: []string{"tls://a", "tls://b"}, Replicas: 3, TLS: &v1alpha1.TLS{},
			Observations: v1alpha1.StreamLimits{Retention: metav1.Duration{Duration: time.Hour}, MaxSize: resource.MustParse("4Gi")},
			Notices:      v1alpha1.StreamLimits{MaxSize: resource.MustParse("512Mi")}},
		Archivist: v1alpha1.Archivist{PodTemplate: template, PartInterval: &metav1.Duration{Duration: time.Second}}}}
	pool := &v1alpha1.IngestGateway{Spec: v1alpha1.IngestGatewaySpec{Replicas: new(int32(3)), PodTemplate: template,
		Service: v1alpha1.GatewayService{Type: corev1.ServiceTypeLoadBalancer}, Storage: v1alpha1.GatewayStorage{StorageClassName: &class}}}
	plain := &v1alpha1.IngestGateway{Spec: v1alpha1.IngestGatewaySpec{Replicas: new(int32(1)), Service: v1alpha1.GatewayService{Type: corev1.ServiceTypeNodePort}}}
	server := &v1alpha1.FeedServer{ObjectMeta: metav1.ObjectMeta{Name: "north"}, Spec: v1alpha1.FeedServerSpec{Replicas: new(int32(2))}}
	named := &v1alpha1.FeedServer{Spec: v1alpha1.FeedServerSpec{URL: "https://archive.example"}}
	for o, fields := range map[metav1.Object]string{
		site:   "spec.objectStore, spec.jetStream (but for observations and notices), spec.jetStream.observations.maxSize (2.0 GiB hold, a part of the disk: the stream cannot be larger), spec.archivist.podTemplate",
		pool:   "spec.replicas, spec.podTemplate, spec.service.type, spec.storage.storageClassName",
		plain:  "",
		server: "spec.replicas",
		named:  "",
	} {
		own.Apply(o)
		if got, is := o.GetAnnotations()[v1alpha1.AnnotationNotApplied]; !is || got != fields {
			t.Errorf("%T %s: not applied are %q, want %q", o, o.GetName(), got, fields)
		}
	}
	spec := &site.Spec
	if spec.ObjectStore != own.ObjectStore || spec.JetStream.Servers[0] != own.JetStream.Servers[0] || spec.JetStream.TLS != nil || spec.JetStream.Replicas != 1 {
		t.Errorf("the Site has the servers %+v, %+v", spec.ObjectStore, spec.JetStream)
	}
	if spec.Code != "hub" || spec.Title != "Hub" || spec.JetStream.Observations.Retention.Duration != time.Hour || spec.Archivist.PartInterval.Duration != time.Second {
		t.Errorf("what holds without a cluster is gone: %+v", spec)
	}
	if is := spec.JetStream; is.Observations.MaxSize.Value() != 2<<30 || is.Notices.MaxSize.Value() != 512<<20 {
		t.Errorf("on a disk with 4 GiB the streams have at most %s and %s", &is.Observations.MaxSize, &is.Notices.MaxSize)
	}
	for _, b := range bus.Buckets(site) {
		if b.Unsynced != (b.Name == "STATUS_hub" || b.Name == "LEASE_hub") {
			t.Errorf("bucket %s: not synced: %t", b.Name, b.Unsynced)
		}
	}
	if *pool.Spec.Replicas != 1 || pool.Spec.Service.Type != corev1.ServiceTypeNodePort || pool.Spec.Storage.StorageClassName != nil {
		t.Errorf("the pool is %+v", pool.Spec)
	}
	if server.Spec.URL != "http://127.0.0.1:8080/north" || named.Spec.URL != "https://archive.example" {
		t.Errorf("the FeedServers serve at %q and %q", server.Spec.URL, named.Spec.URL)
	}

	// The condition names what does not hold.
	status, _ := plan.SiteStatus(plan.SiteView{Now: time.Unix(0, 0), Site: site})
	says := ""
	for _, c := range status.Conditions {
		if c.Type == v1alpha1.ConditionNotApplied && c.Status == metav1.ConditionTrue {
			says = c.Message
		}
	}
	if !strings.Contains(says, "spec.objectStore") {
		t.Errorf("the Site's condition says %q", says)
	}
}
