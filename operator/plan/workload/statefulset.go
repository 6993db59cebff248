// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
	appsac "k8s.io/client-go/applyconfigurations/apps/v1"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
	metaac "k8s.io/client-go/applyconfigurations/meta/v1"

	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/finding"
)

// The directories in which the gateway's container finds things.
const (
	dataDir           = "/var/lib/substorm"
	objectStoreDir    = "/etc/substorm/s3"
	objectStoreTLSDir = "/etc/substorm/s3-tls"
	jetStreamDir      = "/etc/substorm/jetstream"
	jetStreamTLSDir   = "/etc/substorm/nats-tls"
	tlsDir            = "/etc/substorm/tls"
	clientCADir       = "/etc/substorm/client-ca"
	peersDir          = "/etc/substorm/peers"
)

const (
	httpPort = 8080
	// peersPort is where a pool's gateways keep copies of each other's spools.
	peersPort = 8443
	// mirrorPort is where runs of mirrors send the objects that they pulled.
	mirrorPort = 8444
	// userID is the user and group of all our images.
	userID = 65532
	// stopMargin is the time that the kubelet gives a pod beyond its drain.
	stopMargin = 15
)

// statefulSet: each pod keeps its volume, even if the pod or the pool is removed.
func (p Pool) statefulSet() *appsac.StatefulSetApplyConfiguration {
	gw := p.Gateway
	spec := appsac.StatefulSetSpec().
		WithReplicas(p.Replicas).
		WithServiceName(podsService(gw.Name)).
		WithPodManagementPolicy(appsv1.ParallelPodManagement).
		WithSelector(metaac.LabelSelector().WithMatchLabels(PodLabels(gw.Name))).
		WithPersistentVolumeClaimRetentionPolicy(appsac.StatefulSetPersistentVolumeClaimRetentionPolicy().
			WithWhenDeleted(appsv1.RetainPersistentVolumeClaimRetentionPolicyType).
			WithWhenScaled(appsv1.RetainPersistentVolumeClaimRetentionPolicyType)).
		WithVolumeClaimTemplates(p.volumeClaim()).
		WithTemplate(p.podTemplate())
	return appsac.StatefulSet(gw.Name, gw.Namespace).
		WithLabels(p.labels()).
		WithOwnerReferences(p.owner()).
		WithSpec(spec)
}

// replicas: one where nothing is said.
func ReplicasOf(asked *int32) *int32 {
	if asked == nil {
		return new(int32(1))
	}
	return asked
}

func (p Pool) volumeClaim() *coreac.PersistentVolumeClaimApplyConfiguration {
	storage := &p.Gateway.Spec.Storage
	spec := coreac.PersistentVolumeClaimSpec().
		WithAccessModes(corev1.ReadWriteOnce).
		WithResources(coreac.VolumeResourceRequirements().
			WithRequests(corev1.ResourceList{corev1.ResourceStorage: storage.Size}))
	if storage.StorageClassName != nil {
		spec.WithStorageClassName(*storage.StorageClassName)
	}
	claim := &coreac.PersistentVolumeClaimApplyConfiguration{}
	return claim.WithName("data").WithSpec(spec)
}

func (p Pool) podTemplate() *coreac.PodTemplateSpecApplyConfiguration {
	if p.Keeps != nil {
		return p.Keeps
	}
	gw := p.Gateway
	pod := coreac.PodSpec().
		WithServiceAccountName(gw.Name).
		WithAutomountServiceAccountToken(false).
		WithEnableServiceLinks(false).
		WithTerminationGracePeriodSeconds(int64(gw.Spec.DrainTimeout.Seconds()) + stopMargin).
		WithSecurityContext(coreac.PodSecurityContext().
			WithRunAsNonRoot(true).
			WithRunAsUser(userID).
			WithRunAsGroup(userID).
			WithFSGroup(userID).
			WithFSGroupChangePolicy(corev1.FSGroupChangeOnRootMismatch).
			WithSeccompProfile(coreac.SeccompProfile().WithType(corev1.SeccompProfileTypeRuntimeDefault))).
		WithContainers(p.container()).
		WithVolumes(p.volumes()...)
	template := coreac.PodTemplateSpec().WithLabels(p.labels()).WithSpec(pod)
	if p.Permissions != "" {
		template.WithAnnotations(map[string]string{AnnotationPermissions: p.Permissions})
	}
	return podRules{&gw.Spec.PodTemplate, p.Pull, PodLabels(gw.Name), p.Apart}.apply(template)
}

func (p Pool) container() *coreac.ContainerApplyConfiguration {
	return coreac.Container().
		WithName("gateway").
		WithImage(p.Image).
		WithArgs(p.arguments()...).
		WithEnv(
			podField("POD_NAME", "metadata.name"),
			podField("NODE_NAME", "spec.nodeName"),
			podField("POD_IP", "status.podIP")).
		WithPorts(p.containerPorts()...).
		WithReadinessProbe(probeOf("/readyz", "http").WithPeriodSeconds(2).WithTimeoutSeconds(2).WithFailureThreshold(2)).
		WithLivenessProbe(probeOf("/healthz", "http").WithPeriodSeconds(10).WithTimeoutSeconds(5).WithFailureThreshold(6)).
		WithResources(gatewayResources()).
		WithSecurityContext(coreac.SecurityContext().
			WithAllowPrivilegeEscalation(false).
			WithReadOnlyRootFilesystem(true).
			WithCapabilities(coreac.Capabilities().WithDrop("ALL"))).
		WithVolumeMounts(p.mounts()...)
}

// containerPorts are the ports that are not in spec.ports.
func (p Pool) containerPorts() []*coreac.ContainerPortApplyConfiguration {
	ports := []*coreac.ContainerPortApplyConfiguration{
		coreac.ContainerPort().WithName("http").WithContainerPort(httpPort).WithProtocol(corev1.ProtocolTCP),
		coreac.ContainerPort().WithName("peers").WithContainerPort(peersPort).WithProtocol(corev1.ProtocolTCP),
		coreac.ContainerPort().WithName("mirror").WithContainerPort(mirrorPort).WithProtocol(corev1.ProtocolTCP),
	}
	if probe := p.Gateway.Spec.LinkProbe; probe != nil {
		ports = append(ports, coreac.ContainerPort().WithName("link-probe").WithContainerPort(probe.Port).WithProtocol(corev1.ProtocolUDP))
	}
	return ports
}

func podField(name, path string) *coreac.EnvVarApplyConfiguration {
	return coreac.EnvVar().WithName(name).WithValueFrom(
		coreac.EnvVarSource().WithFieldRef(coreac.ObjectFieldSelector().WithFieldPath(path)))
}

func probeOf(path, port string) *coreac.ProbeApplyConfiguration {
	return coreac.Probe().WithHTTPGet(coreac.HTTPGetAction().WithPath(path).WithPort(intstr.FromString(port)))
}

// gatewayResources are the default: a memory limit, since the gateway's budget is half of it.
func gatewayResources() *coreac.ResourceRequirementsApplyConfiguration {
	return coreac.ResourceRequirements().
		WithRequests(corev1.ResourceList{
			corev1.ResourceCPU:    resource.MustParse("100m"),
			corev1.ResourceMemory: resource.MustParse("256Mi"),
		}).
		WithLimits(corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("512Mi")})
}

func resourcesOf(asked *v1alpha1.Resources) *coreac.ResourceRequirementsApplyConfiguration {
	r := coreac.ResourceRequirements()
	if len(asked.Requests) > 0 {
		r.WithRequests(asked.Requests)
	}
	if len(asked.Limits) > 0 {
		r.WithLimits(asked.Limits)
	}
	return r
}

func (p Pool) secretMounts() []secretMount {
	store, js := &p.Site.Spec.ObjectStore, &p.Site.Spec.JetStream
	all := []secretMount{
		allKeys("s3", userOr(store, store.GatewayCredentialsSecretRef), objectStoreDir),
		allKeys("jetstream", p.credentialsSecret(), jetStreamDir),
		allKeys("peers", PeersSecret(p.Gateway.Name), peersDir),
	}
	all = append(all, clientTLS("s3-tls", store.TLS, objectStoreTLSDir)...)
	all = append(all, clientTLS("nats-tls", js.TLS, jetStreamTLSDir)...)
	return append(all, serverTLS(p.Gateway.Spec.TLS)...)
}

func (p Pool) volumes() []*coreac.VolumeApplyConfiguration {
	var all []*coreac.VolumeApplyConfiguration
	for _, m := range p.secretMounts() {
		all = append(all, m.source())
	}
	return all
}

func (p Pool) mounts() []*coreac.VolumeMountApplyConfiguration {
	all := []*coreac.VolumeMountApplyConfiguration{coreac.VolumeMount().WithName("data").WithMountPath(dataDir)}
	for _, m := range p.secretMounts() {
		all = append(all, m.mount())
	}
	return all
}

// RolledOut reports what a StatefulSet still lacks, or "".
func RolledOut(set *appsv1.StatefulSet, asked int32) string {
	switch {
	case set == nil:
		return "its StatefulSet is not there yet"
	case set.Status.ObservedGeneration < set.Generation || *ReplicasOf(set.Spec.Replicas) != asked:
		return "its StatefulSet is being changed"
	case set.Status.ReadyReplicas < asked:
		return finding.Count(set.Status.ReadyReplicas, asked) + " pods receive"
	case set.Status.UpdatedReplicas < asked && set.Status.UpdateRevision != set.Status.CurrentRevision:
		return finding.Count(set.Status.UpdatedReplicas, asked) + " pods run the newest revision"
	case set.Status.Replicas > asked:
		return finding.Count(set.Status.Replicas-asked, set.Status.Replicas) + " pods are still to stop"
	default:
		return ""
	}
}

// PodsAreNotMade says where to look for the reason why pods of a StatefulSet are not made, such as a missing PriorityClass or a quota, or
// "".
func PodsAreNotMade(set *appsv1.StatefulSet) string {
	if set == nil || set.Status.ObservedGeneration < set.Generation || set.Status.Replicas >= *ReplicasOf(set.Spec.Replicas) {
		return ""
	}
	return fmt.Sprintf("%s pods are made: `kubectl describe statefulset %s` says what keeps the others", finding.Count(set.Status.Replicas, *ReplicasOf(set.Spec.Replicas)), set.Name)
}
