// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
	metaac "k8s.io/client-go/applyconfigurations/meta/v1"

	"github.com/substorm/substorm/operator/api/v1alpha1"
)

// FieldOwner owns the fields that the operator applies.
const FieldOwner = "substorm-operator"

// Labels of every object that the operator makes.
const (
	LabelName      = "app.kubernetes.io/name"
	LabelInstance  = "app.kubernetes.io/instance"
	LabelComponent = "app.kubernetes.io/component"
	LabelPartOf    = "app.kubernetes.io/part-of"
	LabelManagedBy = "app.kubernetes.io/managed-by"
)

// AnnotationPermissions holds the hash of a JetStream user's permissions, on
// its Secret and on the pods that use it.
const AnnotationPermissions = "substorm.dev/jetstream-permissions"

// GatewayProgram is the name of the program.
const GatewayProgram = "ingest-gateway"

// Pool is an IngestGateway that has a Site, and the configuration of its pods.
type Pool struct {
	Gateway *v1alpha1.IngestGateway
	Site    *v1alpha1.Site
	// Replicas is how many pods there should be, see GatewayView.Replicas.
	Replicas int32
	// Image of the gateway.
	Image string
	// Keeps is the current template of pods, if another pool is to get Image first, see GatewayView.WaitsForTurn.
	Keeps *coreac.PodTemplateSpecApplyConfiguration
	// Pull is how nodes get Image.
	Pull Pulling
	// Apart keeps any two of the pods on two nodes, see GatewayView.PodsApart.
	Apart bool
	// Permissions is the hash of the pool's JetStream user; empty if the Site gives credentials.
	Permissions string
	// Secrets are the existing ones of those that the Site and the pool name.
	Secrets Secrets
}

// Object is something to apply, with its kind and name.
type Object struct {
	Kind  string                     `json:"-"`
	Name  string                     `json:"-"`
	Apply runtime.ApplyConfiguration `json:"apply"`
}

// Objects are the Kubernetes objects of a pool but the Secret with its
// credentials, in the order in which to apply them. The StatefulSet is not among
// them while a Secret that its pods mount is missing: applied, it would replace
// pods that receive by pods that cannot start.
func (p Pool) Objects() []Object {
	objects := []Object{
		{"ServiceAccount", p.Gateway.Name, p.serviceAccount()},
		{"Service", podsService(p.Gateway.Name), p.podsService()},
	}
	for _, s := range p.dataServices() {
		objects = append(objects, Object{"Service", *s.Name, s})
	}
	objects = append(objects, Object{"PodDisruptionBudget", p.Gateway.Name, p.disruptionBudget()})
	if _, missing := p.Secrets.Missing(podSecrets(p.Site, p.Gateway)); missing {
		return objects
	}
	return append(objects, Object{"StatefulSet", p.Gateway.Name, p.statefulSet()})
}

// PodLabels are the labels of the pool's pods, and its selector.
func PodLabels(pool string) map[string]string {
	return map[string]string{LabelName: GatewayProgram, LabelInstance: pool}
}

func (p Pool) labels() map[string]string {
	labels := PodLabels(p.Gateway.Name)
	labels[LabelComponent] = "gateway"
	labels[LabelPartOf] = "substorm"
	labels[LabelManagedBy] = FieldOwner
	return labels
}

func (p Pool) owner() *metaac.OwnerReferenceApplyConfiguration {
	return metaac.OwnerReference().
		WithAPIVersion(v1alpha1.GroupVersion.String()).
		WithKind("IngestGateway").
		WithName(p.Gateway.Name).
		WithUID(p.Gateway.UID).
		WithController(true)
}

// arguments are the flags of the gateway program. $(VAR) is expanded by the
// kubelet, see environment.
func (p Pool) arguments() []string {
	spec, store, js := &p.Gateway.Spec, &p.Site.Spec.ObjectStore, &p.Site.Spec.JetStream
	budget := int64(0)
	if spec.Memory.Budget != nil {
		budget = spec.Memory.Budget.Value()
	}
	args := []string{
		"--site=" + p.Site.Spec.Code,
		"--pool=" + p.Gateway.Name,
		"--gateway=$(POD_NAME)",
		"--node=$(NODE_NAME)",
		"--pod-ip=$(POD_IP)",
		"--data-dir=" + dataDir,
		"--listen-http=:" + strconv.Itoa(httpPort),
		fmt.Sprintf("--ports=%d-%d", spec.Ports.First, spec.Ports.Last),
		"--memory-budget=" + strconv.FormatInt(budget, 10),
		"--drain-timeout=" + spec.DrainTimeout.Duration.String(),
		"--s3-endpoint=" + store.Endpoint,
		"--s3-bucket=" + store.Bucket,
		"--s3-region=" + store.Region,
		"--s3-credentials-dir=" + objectStoreDir,
		"--nats-servers=" + strings.Join(js.Servers, ","),
		"--nats-credentials=" + jetStreamDir + "/" + KeyUserCreds,
		"--replica-listen=:" + strconv.Itoa(peersPort),
		"--replica-tls-dir=" + peersDir,
		"--mirror-listen=:" + strconv.Itoa(mirrorPort),
	}
	if store.TLS != nil {
		args = append(args, "--s3-tls-dir="+objectStoreTLSDir)
	}
	if js.TLS != nil {
		args = append(args, "--nats-tls-dir="+jetStreamTLSDir)
	}
	if js.AccountKeySecretRef != nil {
		args = append(args, "--nats-inbox-prefix="+InboxPrefix(p.Gateway.Name))
	}
	return append(args, p.senderArguments()...)
}

// senderArguments are the flags for who may send, beside the registry.
func (p Pool) senderArguments() []string {
	spec := &p.Gateway.Spec
	var args []string
	if spec.TLS != nil {
		args = append(args, "--tls-dir="+tlsDir)
		if spec.TLS.CASecretRef != nil {
			args = append(args, "--client-ca-dir="+clientCADir)
		}
	}
	if spec.Edge != nil {
		args = append(args, fmt.Sprintf("--edge-port=%d", spec.Edge.Port), "--edge-sources="+strings.Join(spec.Edge.Sources, ","))
	}
	if spec.LinkProbe != nil {
		args = append(args, fmt.Sprintf("--link-probe-port=%d", spec.LinkProbe.Port))
	}
	if spec.UnknownSenders != v1alpha1.UnknownSendersQuarantine {
		return args
	}
	q := quarantine(spec.Quarantine)
	args = append(args, "--unknown-senders="+string(spec.UnknownSenders),
		fmt.Sprintf("--quarantine-max-size=%d", q.MaxSize.Value()), "--quarantine-retention="+q.Retention.Duration.String())
	if len(q.Ports) > 0 {
		args = append(args, "--quarantine-ports="+joined(q.Ports))
	}
	return args
}

// quarantine has the API server's defaults, for a pool without any.
func quarantine(asked *v1alpha1.Quarantine) v1alpha1.Quarantine {
	if asked != nil {
		return *asked
	}
	return v1alpha1.Quarantine{MaxSize: resource.MustParse("1Gi"), Retention: metav1.Duration{Duration: 7 * 24 * time.Hour}}
}

func joined(ports []int32) string {
	all := make([]string, len(ports))
	for i, p := range ports {
		all[i] = strconv.Itoa(int(p))
	}
	return strings.Join(all, ",")
}

// JetStreamSecret is the name of the Secret with the pool's own credentials.
func JetStreamSecret(pool string) string { return pool + "-jetstream" }

func (p Pool) credentialsSecret() string {
	if ref := p.Site.Spec.JetStream.CredentialsSecretRef; ref != nil {
		return ref.Name
	}
	return JetStreamSecret(p.Gateway.Name)
}

// PodProblem explains why the first of the pods that aren't ready is not, or "".
func PodProblem(pods []corev1.Pod) string {
	pods = slices.SortedFunc(slices.Values(pods), func(a, b corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	for i := range pods {
		if PodReady(&pods[i]) {
			continue
		}
		if problem := podProblem(&pods[i]); problem != "" {
			return fmt.Sprintf("pod %s: %s", pods[i].Name, problem)
		}
	}
	return ""
}

func podProblem(pod *corev1.Pod) string {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return c.Message
		}
	}
	for _, c := range pod.Status.ContainerStatuses {
		switch w := c.State.Waiting; {
		case w != nil && w.Message != "":
			return w.Reason + ": " + w.Message
		case w != nil && w.Reason != "ContainerCreating" && w.Reason != "PodInitializing":
			return w.Reason
		case c.State.Terminated != nil:
			return fmt.Sprintf("%s with exit code %d", c.State.Terminated.Reason, c.State.Terminated.ExitCode)
		}
	}
	return ""
}

// PodReady says whether a pod is ready, and not about to go.
func PodReady(pod *corev1.Pod) bool {
	if pod.DeletionTimestamp != nil {
		return false
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// CredentialsSecret holds a pool's credentials, and the hash of their permissions.
func (p Pool) CredentialsSecret(creds []byte) *coreac.SecretApplyConfiguration {
	return coreac.Secret(JetStreamSecret(p.Gateway.Name), p.Gateway.Namespace).
		WithLabels(p.labels()).
		WithAnnotations(map[string]string{AnnotationPermissions: p.Permissions}).
		WithOwnerReferences(p.owner()).
		WithType(corev1.SecretTypeOpaque).
		WithData(map[string][]byte{KeyUserCreds: creds})
}
