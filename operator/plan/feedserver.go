// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
	appsac "k8s.io/client-go/applyconfigurations/apps/v1"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"
	metaac "k8s.io/client-go/applyconfigurations/meta/v1"
	policyac "k8s.io/client-go/applyconfigurations/policy/v1"

	"github.com/substorm/substorm/operator/api/v1alpha1"
)

const (
	feedServerProgram = "feed-server"
	// Where feed servers listen: consumers in plain text or over TLS, and whoever
	// asks for health and metrics.
	feedPlainPort   = 8080
	feedTLSPort     = 8443
	feedMetricsPort = 9090
	// feedDrain is how long a feed server that stops tells its clients to go.
	feedDrain = 15
)

// FeedServer is a Site that has feed servers, and what their pods run.
type FeedServer struct {
	Site *v1alpha1.Site
	// Image of the feed server.
	Image string
	// PullSecrets name Secrets with which Image is pulled.
	PullSecrets []string
	// Permissions is the hash of their JetStream user; empty where the Site gives
	// credentials.
	Permissions string
	// Secrets are those that exist of the ones that the Site names.
	Secrets Secrets
}

// FeedServerName is the name of all objects of a Site's feed servers: its code is
// short enough for the name of a Service.
func FeedServerName(site *v1alpha1.Site) string { return site.Spec.Code + "-" + feedServerProgram }

// FeedServerSecrets are the Secrets that feed servers mount.
func FeedServerSecrets(site *v1alpha1.Site) []SecretNeed {
	if site.Spec.FeedServer == nil {
		return nil
	}
	needs := slices.DeleteFunc(JetStreamSecrets(site), func(n SecretNeed) bool { return slices.Contains(n.Keys, KeyAccountSeed) })
	store := ObjectStoreSecrets(site)
	if ref := site.Spec.ObjectStore.ReadCredentialsSecretRef; ref != nil {
		store[0] = SecretNeed{"spec.objectStore.readCredentialsSecretRef", ref.Name, store[0].Keys}
	}
	needs = append(needs, store...)
	if ref := site.Spec.FeedServer.TLSSecretRef; ref != nil {
		needs = append(needs, SecretNeed{"spec.feedServer.tlsSecretRef", ref.Name, []string{KeyCertificate, KeyPrivateKey}})
	}
	if ref := site.Spec.FeedServer.ClientCASecretRef; ref != nil {
		needs = append(needs, SecretNeed{"spec.feedServer.clientCASecretRef", ref.Name, []string{KeyCA}})
	}
	return needs
}

// FeedServerLabels are the labels of a Site's feed servers' pods, and their selector.
func FeedServerLabels(site string) map[string]string {
	return map[string]string{LabelName: feedServerProgram, LabelInstance: site}
}

// Objects are the Kubernetes objects but the Secret with credentials, in the order
// in which to apply them. The Deployment is not among them while a Secret that its
// pods mount is missing.
func (s FeedServer) Objects() []Object {
	name := FeedServerName(s.Site)
	objects := []Object{
		{"ServiceAccount", name, coreac.ServiceAccount(name, s.Site.Namespace).
			WithLabels(s.labels()).WithOwnerReferences(s.owner()).WithAutomountServiceAccountToken(false)},
		{"Service", name, s.service()},
		{"PodDisruptionBudget", name, s.disruptionBudget()},
	}
	if _, missing := s.Secrets.Missing(FeedServerSecrets(s.Site)); missing {
		return objects
	}
	return append(objects, Object{"Deployment", name, s.deployment()})
}

// FeedServerObjects are the kinds and the name of what Objects returns: what goes
// when a Site has feed servers no longer.
func FeedServerObjects(site *v1alpha1.Site) []Object {
	name := FeedServerName(site)
	return []Object{{Kind: "Deployment", Name: name}, {Kind: "PodDisruptionBudget", Name: name}, {Kind: "Service", Name: name}, {Kind: "ServiceAccount", Name: name}}
}

func (s FeedServer) labels() map[string]string {
	labels := FeedServerLabels(s.Site.Name)
	labels[LabelComponent] = feedServerProgram
	labels[LabelPartOf] = "substorm"
	labels[LabelManagedBy] = FieldOwner
	return labels
}

func (s FeedServer) owner() *metaac.OwnerReferenceApplyConfiguration {
	return metaac.OwnerReference().
		WithAPIVersion(v1alpha1.GroupVersion.String()).
		WithKind("Site").
		WithName(s.Site.Name).
		WithUID(s.Site.UID).
		WithController(true)
}

// CredentialsSecret holds the feed servers' credentials, and the hash of what they allow.
func (s FeedServer) CredentialsSecret(creds []byte) *coreac.SecretApplyConfiguration {
	return coreac.Secret(JetStreamSecret(FeedServerName(s.Site)), s.Site.Namespace).
		WithLabels(s.labels()).
		WithAnnotations(map[string]string{AnnotationPermissions: s.Permissions}).
		WithOwnerReferences(s.owner()).
		WithType(corev1.SecretTypeOpaque).
		WithData(map[string][]byte{KeyUserCreds: creds})
}

// servicePorts are the port of the Service, its name and the pods' port.
func (s FeedServer) servicePorts() (name string, port, target int32) {
	if s.Site.Spec.FeedServer.TLSSecretRef != nil {
		return "https", 443, feedTLSPort
	}
	return "http", 80, feedPlainPort
}

func (s FeedServer) service() *coreac.ServiceApplyConfiguration {
	name := FeedServerName(s.Site)
	portName, port, target := s.servicePorts()
	svc := coreac.Service(name, s.Site.Namespace).WithLabels(s.labels()).WithOwnerReferences(s.owner()).
		WithSpec(coreac.ServiceSpec().
			WithType(cmp.Or(s.Site.Spec.FeedServer.Service.Type, corev1.ServiceTypeClusterIP)).
			WithSelector(FeedServerLabels(s.Site.Name)).
			WithPorts(coreac.ServicePort().WithName(portName).WithProtocol(corev1.ProtocolTCP).WithPort(port).WithTargetPort(intstr.FromInt32(target))))
	if len(s.Site.Spec.FeedServer.Service.Annotations) > 0 {
		svc.WithAnnotations(s.Site.Spec.FeedServer.Service.Annotations)
	}
	return svc
}

func (s FeedServer) disruptionBudget() *policyac.PodDisruptionBudgetApplyConfiguration {
	return policyac.PodDisruptionBudget(FeedServerName(s.Site), s.Site.Namespace).
		WithLabels(s.labels()).
		WithOwnerReferences(s.owner()).
		WithSpec(policyac.PodDisruptionBudgetSpec().
			WithMaxUnavailable(intstr.FromInt32(1)).
			WithUnhealthyPodEvictionPolicy(policyv1.AlwaysAllow).
			WithSelector(metaac.LabelSelector().WithMatchLabels(FeedServerLabels(s.Site.Name))))
}

func (s FeedServer) deployment() *appsac.DeploymentApplyConfiguration {
	return appsac.Deployment(FeedServerName(s.Site), s.Site.Namespace).
		WithLabels(s.labels()).
		WithOwnerReferences(s.owner()).
		WithSpec(appsac.DeploymentSpec().
			WithReplicas(s.Site.Spec.FeedServer.Replicas).
			WithSelector(metaac.LabelSelector().WithMatchLabels(FeedServerLabels(s.Site.Name))).
			WithStrategy(appsac.DeploymentStrategy().WithRollingUpdate(appsac.RollingUpdateDeployment().
				WithMaxUnavailable(intstr.FromInt32(0)).WithMaxSurge(intstr.FromInt32(1)))).
			WithTemplate(s.podTemplate()))
}

func (s FeedServer) podTemplate() *coreac.PodTemplateSpecApplyConfiguration {
	pod := coreac.PodSpec().
		WithServiceAccountName(FeedServerName(s.Site)).
		WithAutomountServiceAccountToken(false).
		WithEnableServiceLinks(false).
		WithTerminationGracePeriodSeconds(feedDrain + stopMargin).
		WithSecurityContext(coreac.PodSecurityContext().
			WithRunAsNonRoot(true).
			WithRunAsUser(userID).
			WithRunAsGroup(userID).
			WithFSGroup(userID).
			WithSeccompProfile(coreac.SeccompProfile().WithType(corev1.SeccompProfileTypeRuntimeDefault))).
		WithTopologySpreadConstraints(coreac.TopologySpreadConstraint().
			WithMaxSkew(1).
			WithTopologyKey(corev1.LabelHostname).
			WithWhenUnsatisfiable(corev1.ScheduleAnyway).
			WithLabelSelector(metaac.LabelSelector().WithMatchLabels(FeedServerLabels(s.Site.Name)))).
		WithContainers(s.container())
	for _, m := range s.secretMounts() {
		pod.WithVolumes(coreac.Volume().WithName(m.volume).WithSecret(coreac.SecretVolumeSource().
			WithSecretName(m.secret).WithDefaultMode(0o440)))
	}
	for _, name := range s.PullSecrets {
		pod.WithImagePullSecrets(coreac.LocalObjectReference().WithName(name))
	}
	template := coreac.PodTemplateSpec().WithLabels(s.labels()).WithSpec(pod)
	if s.Permissions != "" {
		template.WithAnnotations(map[string]string{AnnotationPermissions: s.Permissions})
	}
	return template
}

func (s FeedServer) container() *coreac.ContainerApplyConfiguration {
	portName, _, port := s.servicePorts()
	c := coreac.Container().
		WithName(feedServerProgram).
		WithImage(s.Image).
		WithImagePullPolicy(corev1.PullIfNotPresent).
		WithArgs(s.arguments()...).
		WithEnv(podField("POD_NAME", "metadata.name")).
		WithPorts(coreac.ContainerPort().WithName(portName).WithContainerPort(port).WithProtocol(corev1.ProtocolTCP),
			coreac.ContainerPort().WithName("metrics").WithContainerPort(feedMetricsPort).WithProtocol(corev1.ProtocolTCP)).
		WithReadinessProbe(feedProbe("/readyz").WithPeriodSeconds(2).WithTimeoutSeconds(2).WithFailureThreshold(2)).
		WithLivenessProbe(feedProbe("/healthz").WithPeriodSeconds(10).WithTimeoutSeconds(5).WithFailureThreshold(6)).
		WithResources(s.resources()).
		WithSecurityContext(coreac.SecurityContext().
			WithAllowPrivilegeEscalation(false).
			WithReadOnlyRootFilesystem(true).
			WithCapabilities(coreac.Capabilities().WithDrop("ALL")))
	for _, m := range s.secretMounts() {
		c.WithVolumeMounts(coreac.VolumeMount().WithName(m.volume).WithMountPath(m.dir).WithReadOnly(true))
	}
	return c
}

func feedProbe(path string) *coreac.ProbeApplyConfiguration {
	return coreac.Probe().WithHTTPGet(coreac.HTTPGetAction().WithPath(path).WithPort(intstr.FromString("metrics")))
}

func (s FeedServer) resources() *coreac.ResourceRequirementsApplyConfiguration {
	if asked := s.Site.Spec.FeedServer.Resources; asked != nil {
		return resourcesOf(asked)
	}
	return coreac.ResourceRequirements().
		WithRequests(corev1.ResourceList{
			corev1.ResourceCPU:    resource.MustParse("100m"),
			corev1.ResourceMemory: resource.MustParse("256Mi"),
		}).
		WithLimits(corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")})
}

// arguments are the flags of the feed-server program, which follow the gateway's.
func (s FeedServer) arguments() []string {
	store, js := &s.Site.Spec.ObjectStore, &s.Site.Spec.JetStream
	_, _, port := s.servicePorts()
	args := []string{
		"--site=" + s.Site.Spec.Code,
		"--pod=$(POD_NAME)",
		"--listen=:" + strconv.Itoa(int(port)),
		"--listen-http=:" + strconv.Itoa(feedMetricsPort),
		"--drain-timeout=" + strconv.Itoa(feedDrain) + "s",
		"--nats-servers=" + strings.Join(js.Servers, ","),
		"--nats-credentials=" + jetStreamDir + "/" + KeyUserCreds,
		"--s3-endpoint=" + store.Endpoint,
		"--s3-bucket=" + store.Bucket,
		"--s3-region=" + store.Region,
		"--s3-credentials-dir=" + objectStoreDir,
	}
	if store.TLS != nil {
		args = append(args, "--s3-tls-dir="+objectStoreTLSDir)
	}
	if url := s.Site.Spec.FeedServer.URL; url != "" {
		args = append(args, "--base-url="+url)
	}
	if proxies := s.Site.Spec.FeedServer.Proxies; len(proxies) > 0 {
		args = append(args, "--proxies="+strings.Join(proxies, ","))
	}
	args = append(args, limitArguments(&s.Site.Spec.FeedServer.Limits)...)
	if js.TLS != nil {
		args = append(args, "--nats-tls-dir="+jetStreamTLSDir)
	}
	if js.AccountKeySecretRef != nil {
		args = append(args, "--nats-inbox-prefix="+InboxPrefix(FeedServerName(s.Site)))
	}
	if s.Site.Spec.FeedServer.TLSSecretRef != nil {
		args = append(args, "--tls-dir="+tlsDir)
	}
	if s.Site.Spec.FeedServer.ClientCASecretRef != nil {
		args = append(args, "--client-ca-dir="+clientCADir)
	}
	return args
}

// limitArguments are the flags of what the Site says of how often clients may ask: the
// program has the defaults.
func limitArguments(limits *v1alpha1.RequestLimits) (args []string) {
	for _, l := range []struct {
		flag  string
		value *int32
	}{
		{"--person-requests-per-second=", limits.Person.RequestsPerSecond}, {"--person-burst=", limits.Person.Burst},
		{"--robot-requests-per-second=", limits.Robot.RequestsPerSecond}, {"--robot-burst=", limits.Robot.Burst},
	} {
		if l.value != nil {
			args = append(args, l.flag+strconv.Itoa(int(*l.value)))
		}
	}
	return args
}

func (s FeedServer) secretMounts() []secretMount {
	store, js := &s.Site.Spec.ObjectStore, &s.Site.Spec.JetStream
	credentials := JetStreamSecret(FeedServerName(s.Site))
	if js.CredentialsSecretRef != nil {
		credentials = js.CredentialsSecretRef.Name
	}
	objects := store.CredentialsSecretRef.Name
	if store.ReadCredentialsSecretRef != nil {
		objects = store.ReadCredentialsSecretRef.Name
	}
	all := []secretMount{{"s3", objects, objectStoreDir}, {"jetstream", credentials, jetStreamDir}}
	if store.TLS != nil {
		all = append(all, secretMount{"s3-tls", store.TLS.SecretRef.Name, objectStoreTLSDir})
	}
	if js.TLS != nil {
		all = append(all, secretMount{"nats-tls", js.TLS.SecretRef.Name, jetStreamTLSDir})
	}
	if ref := s.Site.Spec.FeedServer.TLSSecretRef; ref != nil {
		all = append(all, secretMount{"tls", ref.Name, tlsDir})
	}
	if ref := s.Site.Spec.FeedServer.ClientCASecretRef; ref != nil {
		all = append(all, secretMount{"client-ca", ref.Name, clientCADir})
	}
	return all
}

// FeedServerURL is where consumers reach a Site's feed servers: where its spec says,
// otherwise at the load balancer where there is one, otherwise inside the cluster. Empty where the Site has none.
func FeedServerURL(site *v1alpha1.Site, services []corev1.Service) string {
	if site == nil || site.Spec.FeedServer == nil {
		return ""
	}
	if url := site.Spec.FeedServer.URL; url != "" {
		return url
	}
	scheme, host := "http://", FeedServerName(site)+"."+site.Namespace+".svc"
	if site.Spec.FeedServer.TLSSecretRef != nil {
		scheme = "https://"
	}
	for i := range services {
		if services[i].Name != FeedServerName(site) || services[i].Spec.Type != corev1.ServiceTypeLoadBalancer {
			continue
		}
		for _, in := range services[i].Status.LoadBalancer.Ingress {
			if address := cmp.Or(in.Hostname, bracketed(in.IP)); address != "" {
				return scheme + address
			}
		}
	}
	return scheme + host
}

// bracketed is an address as URLs have it.
func bracketed(ip string) string {
	if strings.Contains(ip, ":") {
		return "[" + ip + "]"
	}
	return ip
}
