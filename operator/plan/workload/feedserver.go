// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/finding"
)

// FeedServerProgram is the name of the program, and of its container.
const FeedServerProgram = "feed-server"

// FlagRsyncAddress begins the argument that says where a feed server serves rsync.
const FlagRsyncAddress = "--rsync-address="

const (
	// The ports where feed servers listen: consumers in plain text or over TLS.
	feedPlainPort = 8080
	feedTLSPort   = 8443
	// rsyncPort is the default port of clients of rsync, and rsyncPodPort the port of pods whose Service has a port below firstFreePort.
	rsyncPort     = 873
	rsyncPodPort  = 8873
	firstFreePort = 1024
	// rsyncPortName is the name of either port.
	rsyncPortName = "rsync"
	// feedDrain is for how long a stopping feed server asks its clients to leave, in seconds.
	feedDrain = 15
)

// FeedServer is the SiteProgram of a FeedServer that has a Site.
type FeedServer struct {
	SiteProgram
	Server *v1alpha1.FeedServer
	// Replicas is how many pods there should be, see FeedServerView.Replicas.
	Replicas int32
	// Tight is FeedServerView.Tight.
	Tight bool
	// Addressed is the FeedServer at whose URL the Site's notifications name objects; nil if none has a URL.
	Addressed *v1alpha1.FeedServer
}

// FeedServerName is the name of all objects of a FeedServer.
func FeedServerName(server string) string { return server + "-" + FeedServerProgram }

// FeedServerOf is the SiteProgram of a FeedServer. The Site is nil where it does not exist:
// then its name and labels alone are of use.
func FeedServerOf(site *v1alpha1.Site, server *v1alpha1.FeedServer) SiteProgram {
	s := SiteProgram{Site: site, Program: FeedServerProgram, Owner: Owner{"FeedServer", server.Name, server.UID},
		name: FeedServerName(server.Name), asked: &server.Spec.PodTemplate}
	if site != nil {
		s.inbox = FeedServerInbox(site, server.Name)
	}
	return s
}

// FeedServerSecrets are the Secrets that a FeedServer needs, its Site's among them.
func FeedServerSecrets(site *v1alpha1.Site, server *v1alpha1.FeedServer) []SecretNeed {
	store := asUser(ObjectStoreSecrets(site), "readCredentialsSecretRef", site.Spec.ObjectStore.ReadCredentialsSecretRef)
	return slices.Concat(JetStreamSecrets(site), store, TLSSecrets("spec.tls", server.Spec.TLS))
}

// feedServerPodSecrets are the Secrets that its pods mount: all except the account's key, which only the operator sees.
func feedServerPodSecrets(site *v1alpha1.Site, server *v1alpha1.FeedServer) []SecretNeed {
	return slices.DeleteFunc(FeedServerSecrets(site, server), func(n SecretNeed) bool { return slices.Contains(n.Keys, KeyAccountSeed) })
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
	if _, missing := s.Secrets.Missing(feedServerPodSecrets(s.Site, s.Server)); missing {
		return objects
	}
	d := s.deployment(s.Replicas, s.podSpec(feedDrain, s.mounts(), s.container()))
	if s.Tight {
		d.Spec.WithStrategy(rolling(1, 0))
	}
	return append(objects, Object{"Deployment", name, d})
}

// FeedServerObjects are the kinds and the name of the objects that Objects returns: they are removed when the Site of a FeedServer is gone.
func FeedServerObjects(server string) []Object {
	name := FeedServerName(server)
	return []Object{{Kind: "Deployment", Name: name}, {Kind: "PodDisruptionBudget", Name: name}, {Kind: "Service", Name: name}, {Kind: "ServiceAccount", Name: name}}
}

// servicePorts are the port of the Service, its name and the pods' port.
func (s FeedServer) servicePorts() (name string, port, target int32) {
	if s.Server.Spec.TLS != nil {
		return "https", 443, feedTLSPort
	}
	return "http", 80, feedPlainPort
}

// RsyncPorts are the port of a FeedServer's Service for rsync, and its pods' port; not ok: there
// is none.
func RsyncPorts(server *v1alpha1.FeedServer) (port, target int32, ok bool) {
	asked := server.Spec.Rsync
	if asked == nil {
		return 0, 0, false
	}
	port = cmp.Or(asked.Port, rsyncPort)
	if port < firstFreePort {
		return port, rsyncPodPort, true
	}
	return port, port, true
}

func (s FeedServer) service() *coreac.ServiceApplyConfiguration {
	portName, port, target := s.servicePorts()
	asked := &s.Server.Spec.Service
	svc := coreac.Service(s.Name(), s.Site.Namespace).WithLabels(s.labels()).WithOwnerReferences(s.owner()).
		WithSpec(coreac.ServiceSpec().
			WithType(cmp.Or(asked.Type, corev1.ServiceTypeClusterIP)).
			WithSelector(s.Selector()).
			WithPorts(coreac.ServicePort().WithName(portName).WithProtocol(corev1.ProtocolTCP).WithPort(port).WithTargetPort(intstr.FromInt32(target))))
	if port, target, ok := RsyncPorts(s.Server); ok {
		svc.Spec.WithPorts(coreac.ServicePort().WithName(rsyncPortName).WithProtocol(corev1.ProtocolTCP).WithPort(port).WithTargetPort(intstr.FromInt32(target)))
	}
	if len(asked.Annotations) > 0 {
		svc.WithAnnotations(asked.Annotations)
	}
	return svc
}

func (s FeedServer) container() *coreac.ContainerApplyConfiguration {
	portName, _, port := s.servicePorts()
	ports := []*coreac.ContainerPortApplyConfiguration{coreac.ContainerPort().WithName(portName).WithContainerPort(port).WithProtocol(corev1.ProtocolTCP)}
	if _, target, ok := RsyncPorts(s.Server); ok {
		ports = append(ports, coreac.ContainerPort().WithName(rsyncPortName).WithContainerPort(target).WithProtocol(corev1.ProtocolTCP))
	}
	return s.SiteProgram.container(s.arguments(), s.mounts(), ports...)
}

// arguments are the flags of the feed-server program, which follow the gateway's.
func (s FeedServer) arguments() []string {
	spec := &s.Server.Spec
	_, _, port := s.servicePorts()
	args := append([]string{
		"--site=" + s.Site.Spec.Code,
		"--feed-server=" + s.Server.Name,
		"--pod=$(POD_NAME)",
		"--listen=:" + strconv.Itoa(int(port)),
		"--listen-http=:" + strconv.Itoa(metricsPort),
		"--drain-timeout=" + strconv.Itoa(feedDrain) + "s",
		"--give-way",
	}, s.backendArguments()...)
	declared := spec.URL
	if s.Server.Annotations[AnnotationOwnURL] != "" {
		declared = ""
	}
	if declared != "" {
		args = append(args, "--base-url="+declared)
	}
	// Any pod of the Site may be the one that notifies a consumer.
	if s.Addressed != nil && s.Addressed.Spec.URL != declared {
		args = append(args, "--notification-url="+s.Addressed.Spec.URL)
	}
	if len(spec.Proxies) > 0 {
		args = append(args, "--proxies="+strings.Join(spec.Proxies, ","))
	}
	args = append(args, limitArguments(&spec.Limits)...)
	args = append(args, s.rsyncArguments()...)
	if spec.TLS != nil {
		args = append(args, "--tls-dir="+tlsDir)
		if spec.TLS.CASecretRef != nil {
			args = append(args, "--client-ca-dir="+clientCADir)
		}
	}
	return args
}

// rsyncArguments are the flags of the service for rsync.
func (s FeedServer) rsyncArguments() []string {
	_, port, ok := RsyncPorts(s.Server)
	if !ok {
		return nil
	}
	asked := s.Server.Spec.Rsync
	args := []string{FlagRsyncAddress + ":" + strconv.Itoa(int(port))}
	if asked.Window != nil {
		args = append(args, "--rsync-window="+asked.Window.Duration.String())
	}
	if most := asked.Limits.MaxTransfers; most > 0 {
		args = append(args, "--rsync-max-transfers="+strconv.Itoa(int(most)))
	}
	return args
}

// limitArguments are the flags of the declared limits of clients' requests: the program has the defaults.
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
	return append(all, serverTLS(s.Server.Spec.TLS)...)
}

// FeedServerURL is where clients reach a FeedServer: where its spec says, otherwise at the
// load balancer where there is one, otherwise inside the cluster.
func FeedServerURL(server *v1alpha1.FeedServer, services []corev1.Service) string {
	if server.Status.URL != "" && finding.Unreadable(server) != "" { // the URL may be what spec lacks
		return server.Status.URL
	}
	if server.Spec.URL != "" {
		return server.Spec.URL
	}
	scheme, host := "http://", FeedServerName(server.Name)+"."+server.Namespace+".svc"
	if server.Spec.TLS != nil {
		scheme = "https://"
	}
	for i := range services {
		if services[i].Name != FeedServerName(server.Name) || services[i].Spec.Type != corev1.ServiceTypeLoadBalancer {
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

// AnnotationOwnURL is on a FeedServer whose spec.url says where it listens, because nothing is declared. Secrets and notifications use that
// URL; links use the address that a request was sent to, which a proxy in front may know better.
const AnnotationOwnURL = "substorm.dev/own-url"
