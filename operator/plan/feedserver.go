// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/substorm/substorm/operator/api/v1alpha1"
)

// FeedServerProgram is the name of the program, and of its container.
const FeedServerProgram = "feed-server"

const (
	// Where feed servers listen: consumers in plain text or over TLS.
	feedPlainPort = 8080
	feedTLSPort   = 8443
	// feedDrain is how long a feed server that stops tells its clients to go, in seconds.
	feedDrain = 15
)

// FeedServer is the SiteProgram of a Site that has feed servers.
type FeedServer struct{ SiteProgram }

// FeedServerName is the name of all objects of a Site's feed servers.
func FeedServerName(site *v1alpha1.Site) string { return siteProgramName(site, FeedServerProgram) }

// FeedServerSecrets are the Secrets that feed servers mount.
func FeedServerSecrets(site *v1alpha1.Site) []SecretNeed {
	if site.Spec.FeedServer == nil {
		return nil
	}
	needs := asUser(backendSecrets(site), "readCredentialsSecretRef", site.Spec.ObjectStore.ReadCredentialsSecretRef)
	if ref := site.Spec.FeedServer.TLSSecretRef; ref != nil {
		needs = append(needs, SecretNeed{"spec.feedServer.tlsSecretRef", ref.Name, []string{KeyCertificate, KeyPrivateKey}})
	}
	if ref := site.Spec.FeedServer.ClientCASecretRef; ref != nil {
		needs = append(needs, SecretNeed{"spec.feedServer.clientCASecretRef", ref.Name, []string{KeyCA}})
	}
	return needs
}

// Objects are the Kubernetes objects but the Secret with credentials, in the order
// in which to apply them. The Deployment is not among them while a Secret that its
// pods mount is missing.
func (s FeedServer) Objects() []Object {
	name := s.Name()
	objects := []Object{
		{"ServiceAccount", name, s.serviceAccount()},
		{"Service", name, s.service()},
		{"PodDisruptionBudget", name, s.disruptionBudget()},
	}
	if _, missing := s.Secrets.Missing(FeedServerSecrets(s.Site)); missing {
		return objects
	}
	return append(objects, Object{"Deployment", name, s.deployment(s.Site.Spec.FeedServer.Replicas, s.podSpec(feedDrain, s.mounts(), s.container()))})
}

// FeedServerObjects are the kinds and the name of what Objects returns: what goes
// when a Site has feed servers no longer.
func FeedServerObjects(site *v1alpha1.Site) []Object {
	name := FeedServerName(site)
	return []Object{{Kind: "Deployment", Name: name}, {Kind: "PodDisruptionBudget", Name: name}, {Kind: "Service", Name: name}, {Kind: "ServiceAccount", Name: name}}
}

// servicePorts are the port of the Service, its name and the pods' port.
func (s FeedServer) servicePorts() (name string, port, target int32) {
	if s.Site.Spec.FeedServer.TLSSecretRef != nil {
		return "https", 443, feedTLSPort
	}
	return "http", 80, feedPlainPort
}

func (s FeedServer) service() *coreac.ServiceApplyConfiguration {
	name := s.Name()
	portName, port, target := s.servicePorts()
	svc := coreac.Service(name, s.Site.Namespace).WithLabels(s.labels()).WithOwnerReferences(s.owner()).
		WithSpec(coreac.ServiceSpec().
			WithType(cmp.Or(s.Site.Spec.FeedServer.Service.Type, corev1.ServiceTypeClusterIP)).
			WithSelector(s.Selector()).
			WithPorts(coreac.ServicePort().WithName(portName).WithProtocol(corev1.ProtocolTCP).WithPort(port).WithTargetPort(intstr.FromInt32(target))))
	if len(s.Site.Spec.FeedServer.Service.Annotations) > 0 {
		svc.WithAnnotations(s.Site.Spec.FeedServer.Service.Annotations)
	}
	return svc
}

func (s FeedServer) container() *coreac.ContainerApplyConfiguration {
	portName, _, port := s.servicePorts()
	return s.SiteProgram.container(s.arguments(), s.mounts(), coreac.ContainerPort().WithName(portName).WithContainerPort(port).WithProtocol(corev1.ProtocolTCP)).
		WithResources(siteProgramResources(s.Site.Spec.FeedServer.Resources))
}

// arguments are the flags of the feed-server program, which follow the gateway's.
func (s FeedServer) arguments() []string {
	_, _, port := s.servicePorts()
	args := append([]string{
		"--site=" + s.Site.Spec.Code,
		"--pod=$(POD_NAME)",
		"--listen=:" + strconv.Itoa(int(port)),
		"--listen-http=:" + strconv.Itoa(metricsPort),
		"--drain-timeout=" + strconv.Itoa(feedDrain) + "s",
	}, s.backendArguments()...)
	if url := s.Site.Spec.FeedServer.URL; url != "" {
		args = append(args, "--base-url="+url)
	}
	if proxies := s.Site.Spec.FeedServer.Proxies; len(proxies) > 0 {
		args = append(args, "--proxies="+strings.Join(proxies, ","))
	}
	args = append(args, limitArguments(&s.Site.Spec.FeedServer.Limits)...)
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

func (s FeedServer) mounts() []secretMount {
	all := s.backendMounts(userOr(&s.Site.Spec.ObjectStore, s.Site.Spec.ObjectStore.ReadCredentialsSecretRef))
	if ref := s.Site.Spec.FeedServer.TLSSecretRef; ref != nil {
		all = append(all, allKeys("tls", ref.Name, tlsDir))
	}
	if ref := s.Site.Spec.FeedServer.ClientCASecretRef; ref != nil {
		all = append(all, allKeys("client-ca", ref.Name, clientCADir))
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
