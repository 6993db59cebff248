// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"maps"
	"strings"

	"github.com/dustin/go-humanize"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/finding"
	"github.com/substorm/substorm/operator/plan/workload"
)

// StandaloneSecret is the Secret in which a process that runs a Site by itself stores how commands reach its servers: a Standalone as JSON
// under KeyStandalone.
const (
	StandaloneSecret = "standalone-servers"
	KeyStandalone    = "servers.json"
)

// Standalone has the values that a process that runs a Site by itself (`substorm up`) uses in place of the manifests' values for a cluster
// and its servers.
type Standalone struct {
	// ObjectStore is the embedded one.
	ObjectStore v1alpha1.ObjectStore `json:"objectStore"`
	// JetStream is the embedded server, and the Secrets with its accounts' keys. A Site's own settings of its streams hold.
	JetStream v1alpha1.JetStream `json:"jetStream"`
	// StreamBytes is how many bytes the disk has for all streams; 0: they are as their Site says.
	StreamBytes int64 `json:"-"`
	// URL is where a FeedServer without a URL of its own serves.
	URL func(server *v1alpha1.FeedServer) string `json:"-"`
}

// Apply changes an object of the API server to the values that hold here, and lists in AnnotationNotApplied the fields that do not.
// Manifests stay as they are: nothing of this is ever written.
func (s *Standalone) Apply(o metav1.Object) {
	switch o := o.(type) {
	case *v1alpha1.Site:
		s.site(o)
	case *v1alpha1.IngestGateway:
		fields := single(&o.Spec.Replicas, &o.Spec.Autoscaling, &o.Spec.PodTemplate)
		if o.Spec.Service.Type != "" && o.Spec.Service.Type != corev1.ServiceTypeNodePort {
			fields = append(fields, "spec.service.type")
		}
		if o.Spec.Storage.StorageClassName != nil {
			fields = append(fields, "spec.storage.storageClassName")
		}
		o.Spec.Service = v1alpha1.GatewayService{Type: corev1.ServiceTypeNodePort} // a port is the same on this machine
		o.Spec.Storage.StorageClassName = nil
		noteNotApplied(o, fields)
	case *v1alpha1.FeedServer:
		fields := single(&o.Spec.Replicas, &o.Spec.Autoscaling, &o.Spec.PodTemplate)
		if o.Spec.Service.Type != "" && o.Spec.Service.Type != corev1.ServiceTypeClusterIP {
			fields = append(fields, "spec.service.type")
		}
		o.Spec.Service = v1alpha1.FeedServerService{Type: corev1.ServiceTypeClusterIP}
		if o.Spec.URL == "" {
			o.Spec.URL = s.URL(o)
			metav1.SetMetaDataAnnotation(&o.ObjectMeta, workload.AnnotationOwnURL, "true")
		}
		noteNotApplied(o, fields)
	}
}

func (s *Standalone) site(site *v1alpha1.Site) {
	spec := &site.Spec
	fields := []string{"spec.objectStore", "spec.jetStream (but for observations and notices)"}
	streams := spec.JetStream
	fields = append(fields, s.fit("observations", &streams.Observations, 2)...)
	fields = append(fields, s.fit("notices", &streams.Notices, 8)...)
	if !equality.Semantic.DeepEqual(spec.Archivist.PodTemplate, v1alpha1.PodTemplate{}) {
		fields = append(fields, "spec.archivist.podTemplate")
	}
	if len(spec.Surge.Levels) > 0 {
		fields = append(fields, "spec.surge (floors: each pool is one)")
	}
	spec.ObjectStore, spec.JetStream = s.ObjectStore, s.JetStream
	spec.JetStream.Observations, spec.JetStream.Notices = streams.Observations, streams.Notices
	spec.Archivist.PodTemplate = v1alpha1.PodTemplate{}
	noteNotApplied(site, fields)
}

// fit bounds a base stream by its share of the disk space for streams, and returns the field with the value that replaces its maxSize. The
// rest is for Feeds and FeedConsumers.
func (s *Standalone) fit(stream string, limits *v1alpha1.StreamLimits, share int64) (fields []string) {
	if bound := s.StreamBytes / share; s.StreamBytes > 0 && limits.MaxSize.Value() > bound {
		fields = append(fields, fmt.Sprintf("spec.jetStream.%s.maxSize (%s hold, a part of the disk: the stream cannot be larger)", stream, humanize.IBytes(uint64(bound))))
		limits.MaxSize = *resource.NewQuantity(bound, resource.BinarySI)
	}
	return fields
}

// single has a workload be one pod as this process runs it, and returns which fields said otherwise.
func single(replicas **int32, autoscaling *v1alpha1.Autoscaling, template *v1alpha1.PodTemplate) (fields []string) {
	if *replicas != nil && **replicas > 1 {
		fields = append(fields, "spec.replicas")
		*replicas = new(int32(1))
	}
	if autoscaling.Driver != "" {
		fields = append(fields, "spec.autoscaling")
		*autoscaling = v1alpha1.Autoscaling{}
	}
	if !equality.Semantic.DeepEqual(*template, v1alpha1.PodTemplate{}) {
		fields = append(fields, "spec.podTemplate")
		*template = v1alpha1.PodTemplate{}
	}
	return fields
}

// noteNotApplied marks an object, also where all its fields hold.
func noteNotApplied(o metav1.Object, fields []string) {
	annotations := maps.Clone(o.GetAnnotations())
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[v1alpha1.AnnotationNotApplied] = strings.Join(fields, ", ")
	o.SetAnnotations(annotations)
}

// notApplied says which fields of an object do not hold.
func notApplied(o metav1.Object) (finding.Finding, bool) {
	fields := o.GetAnnotations()[v1alpha1.AnnotationNotApplied]
	if fields == "" {
		return finding.Finding{}, false
	}
	return finding.Good(v1alpha1.ReasonStandalone, fmt.Sprintf(
		"substorm up runs the whole Site in one process, with an object store and a NATS server of its own: it does not use %s", fields)), true
}

// Manifests is the part of its files that `substorm up` could not apply.
type Manifests struct {
	// Problems has one entry for each problem, with file and line.
	Problems []string `json:"problems"`
	// Whole: nothing of the files is applied.
	Whole bool `json:"whole"`
}

// maxProblems is how many of them the condition names.
const maxProblems = 5

// manifestsApplied reports the parts of the files that do not hold; false if all do.
func (v SiteView) manifestsApplied() (finding.Finding, bool) {
	if v.Manifests == nil || len(v.Manifests.Problems) == 0 {
		return finding.Finding{}, false
	}
	problems, more := v.Manifests.Problems, ""
	if n := len(problems) - maxProblems; n > 0 {
		problems, more = problems[:maxProblems], fmt.Sprintf("; and %d more", n)
	}
	says := "some of what the files declare is not applied"
	if v.Manifests.Whole {
		says = "the files have changed and nothing of the change is applied; what was applied before holds"
	}
	return finding.Bad(v1alpha1.ReasonManifestsInvalid, says+": "+strings.Join(problems, "; ")+more), true
}
