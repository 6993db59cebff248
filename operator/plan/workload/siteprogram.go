// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	appsac "k8s.io/client-go/applyconfigurations/apps/v1"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
	metaac "k8s.io/client-go/applyconfigurations/meta/v1"
	policyac "k8s.io/client-go/applyconfigurations/policy/v1"

	"github.com/substorm/substorm/operator/api/v1alpha1"
)

// metricsPort is where a Site's programs serve health and metrics.
const metricsPort = 9090

// SiteProgram is a program that runs for a Site, in a Deployment: the Site's archivist, or
// the feed servers of a FeedServer.
type SiteProgram struct {
	Site *v1alpha1.Site
	// Program is its name, and the name of its image and of its container.
	Program string
	// Owner is whose its objects are.
	Owner Owner
	// Image that its pods run.
	Image string
	// Pull is how nodes get Image.
	Pull Pulling
	// Permissions is the hash of its JetStream user; empty if the Site gives credentials.
	Permissions string
	// Secrets are the existing ones of those that the Site and the owner name.
	Secrets Secrets

	name, inbox string
	// noStore: it does not use the object store.
	noStore bool
	// asked is the owner's request for the pods.
	asked *v1alpha1.PodTemplate
}

// Owner is the resource whose objects a program consists of.
type Owner struct {
	Kind, Name string
	UID        types.UID
}

// Name is the name of all objects of the program.
func (s SiteProgram) Name() string { return s.name }

// Selector are the labels that the program's pods and objects are found by.
func (s SiteProgram) Selector() map[string]string {
	return map[string]string{LabelName: s.Program, LabelInstance: s.Owner.Name}
}

func (s SiteProgram) selector() *metaac.LabelSelectorApplyConfiguration {
	return metaac.LabelSelector().WithMatchLabels(s.Selector())
}

func (s SiteProgram) labels() map[string]string {
	labels := s.Selector()
	labels[LabelComponent] = s.Program
	labels[LabelPartOf] = "substorm"
	labels[LabelManagedBy] = FieldOwner
	return labels
}

func (s SiteProgram) owner() *metaac.OwnerReferenceApplyConfiguration {
	return metaac.OwnerReference().
		WithAPIVersion(v1alpha1.GroupVersion.String()).
		WithKind(s.Owner.Kind).
		WithName(s.Owner.Name).
		WithUID(s.Owner.UID).
		WithController(true)
}

// CredentialsSecret holds the program's credentials, and the hash of their permissions.
func (s SiteProgram) CredentialsSecret(creds []byte) *coreac.SecretApplyConfiguration {
	return coreac.Secret(JetStreamSecret(s.Name()), s.Site.Namespace).
		WithLabels(s.labels()).
		WithAnnotations(map[string]string{AnnotationPermissions: s.Permissions}).
		WithOwnerReferences(s.owner()).
		WithType(corev1.SecretTypeOpaque).
		WithData(map[string][]byte{KeyUserCreds: creds})
}

func (s SiteProgram) serviceAccount() *coreac.ServiceAccountApplyConfiguration {
	account := coreac.ServiceAccount(s.Name(), s.Site.Namespace).
		WithLabels(s.labels()).WithOwnerReferences(s.owner()).WithAutomountServiceAccountToken(false)
	return annotated(account, s.asked)
}

func (s SiteProgram) disruptionBudget() *policyac.PodDisruptionBudgetApplyConfiguration {
	return policyac.PodDisruptionBudget(s.Name(), s.Site.Namespace).
		WithLabels(s.labels()).
		WithOwnerReferences(s.owner()).
		WithSpec(policyac.PodDisruptionBudgetSpec().
			WithMaxUnavailable(intstr.FromInt32(1)).
			WithUnhealthyPodEvictionPolicy(policyv1.AlwaysAllow).
			WithSelector(s.selector()))
}

func (s SiteProgram) deployment(replicas int32, pod *coreac.PodSpecApplyConfiguration) *appsac.DeploymentApplyConfiguration {
	template := coreac.PodTemplateSpec().WithLabels(s.labels()).WithSpec(pod)
	if s.Permissions != "" {
		template.WithAnnotations(map[string]string{AnnotationPermissions: s.Permissions})
	}
	return appsac.Deployment(s.Name(), s.Site.Namespace).
		WithLabels(s.labels()).
		WithOwnerReferences(s.owner()).
		WithSpec(appsac.DeploymentSpec().
			WithReplicas(replicas).
			WithSelector(s.selector()).
			WithStrategy(rolling(0, 1)).
			WithTemplate(podRules{asked: s.asked, pull: s.Pull, selector: s.Selector()}.apply(template)))
}

// rolling is a rollout in which at most missing pods are unavailable, and with at most extra pods more than planned.
func rolling(missing, extra int32) *appsac.DeploymentStrategyApplyConfiguration {
	return appsac.DeploymentStrategy().WithRollingUpdate(appsac.RollingUpdateDeployment().
		WithMaxUnavailable(intstr.FromInt32(missing)).WithMaxSurge(intstr.FromInt32(extra)))
}

// podSpec returns the spec of pods that run one container and mount Secrets, and stop within some seconds.
func (s SiteProgram) podSpec(stop int64, mounts []secretMount, container *coreac.ContainerApplyConfiguration) *coreac.PodSpecApplyConfiguration {
	pod := coreac.PodSpec().
		WithServiceAccountName(s.Name()).
		WithAutomountServiceAccountToken(false).
		WithEnableServiceLinks(false).
		WithTerminationGracePeriodSeconds(stop + stopMargin).
		WithSecurityContext(coreac.PodSecurityContext().
			WithRunAsNonRoot(true).
			WithRunAsUser(userID).
			WithRunAsGroup(userID).
			WithFSGroup(userID).
			WithSeccompProfile(coreac.SeccompProfile().WithType(corev1.SeccompProfileTypeRuntimeDefault))).
		WithContainers(container)
	for _, m := range mounts {
		pod.WithVolumes(m.source())
	}
	return pod
}

// container that serves health and metrics on metricsPort.
func (s SiteProgram) container(arguments []string, mounts []secretMount, ports ...*coreac.ContainerPortApplyConfiguration) *coreac.ContainerApplyConfiguration {
	c := coreac.Container().
		WithName(s.Program).
		WithImage(s.Image).
		WithArgs(arguments...).
		WithEnv(podField("POD_NAME", "metadata.name")).
		WithPorts(ports...).
		WithPorts(coreac.ContainerPort().WithName("metrics").WithContainerPort(metricsPort).WithProtocol(corev1.ProtocolTCP)).
		WithReadinessProbe(probeOf("/readyz", "metrics").WithPeriodSeconds(2).WithTimeoutSeconds(2).WithFailureThreshold(2)).
		WithLivenessProbe(probeOf("/healthz", "metrics").WithPeriodSeconds(10).WithTimeoutSeconds(5).WithFailureThreshold(6)).
		WithResources(siteProgramResources()).
		WithSecurityContext(coreac.SecurityContext().
			WithAllowPrivilegeEscalation(false).
			WithReadOnlyRootFilesystem(true).
			WithCapabilities(coreac.Capabilities().WithDrop("ALL")))
	for _, m := range mounts {
		c.WithVolumeMounts(m.mount())
	}
	return c
}

// siteProgramResources are the default.
func siteProgramResources() *coreac.ResourceRequirementsApplyConfiguration {
	return coreac.ResourceRequirements().
		WithRequests(corev1.ResourceList{
			corev1.ResourceCPU:    resource.MustParse("100m"),
			corev1.ResourceMemory: resource.MustParse("256Mi"),
		}).
		WithLimits(corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")})
}

// backendArguments are the flags with the addresses of the object store and NATS.
func (s SiteProgram) backendArguments() []string {
	store, js := &s.Site.Spec.ObjectStore, &s.Site.Spec.JetStream
	args := []string{
		"--nats-servers=" + strings.Join(js.Servers, ","),
		"--nats-credentials=" + jetStreamDir + "/" + KeyUserCreds,
	}
	if !s.noStore {
		args = append(args, "--s3-endpoint="+store.Endpoint, "--s3-bucket="+store.Bucket, "--s3-region="+store.Region, "--s3-credentials-dir="+objectStoreDir)
		if store.TLS != nil {
			args = append(args, "--s3-tls-dir="+objectStoreTLSDir)
		}
	}
	if js.TLS != nil {
		args = append(args, "--nats-tls-dir="+jetStreamTLSDir)
	}
	if js.AccountKeySecretRef != nil {
		args = append(args, "--nats-inbox-prefix="+s.inbox)
	}
	return args
}

// backendMounts are the Secrets with credentials and certificates for the object store and
// NATS; store is that with credentials for the object store.
func (s SiteProgram) backendMounts(store string) []secretMount {
	js := &s.Site.Spec.JetStream
	credentials := JetStreamSecret(s.Name())
	if js.CredentialsSecretRef != nil {
		credentials = js.CredentialsSecretRef.Name
	}
	var all []secretMount
	if !s.noStore {
		all = append(all, allKeys("s3", store, objectStoreDir))
	}
	all = append(all, allKeys("jetstream", credentials, jetStreamDir))
	if !s.noStore {
		all = append(all, clientTLS("s3-tls", s.Site.Spec.ObjectStore.TLS, objectStoreTLSDir)...)
	}
	return append(all, clientTLS("nats-tls", js.TLS, jetStreamTLSDir)...)
}

// backendSecrets are the Secrets of a Site that its programs mount, except those for which the operator issues credentials.
func backendSecrets(site *v1alpha1.Site) []SecretNeed {
	needs := slices.DeleteFunc(JetStreamSecrets(site), func(n SecretNeed) bool { return slices.Contains(n.Keys, KeyAccountSeed) })
	return append(needs, ObjectStoreSecrets(site)...)
}
