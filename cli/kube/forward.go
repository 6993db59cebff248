// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// lookupTimeout is how long a name server may take.
const lookupTimeout = 3 * time.Second

// Reachable returns where host:port can be connected to from here: itself where
// its name resolves, else a port of this machine that is forwarded to a pod of
// the Service that the name means. close ends the forwarding.
func (c *Cluster) Reachable(ctx context.Context, address string) (local string, end func(), err error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", nil, fmt.Errorf("address %q: %w", address, err)
	}
	lookup, cancel := context.WithTimeout(ctx, lookupTimeout)
	_, lookupErr := net.DefaultResolver.LookupHost(lookup, host)
	cancel()
	service, namespace, ok := serviceOf(host, c.Namespace)
	if lookupErr == nil || !ok {
		return address, func() {}, nil
	}
	number, err := strconv.ParseInt(port, 10, 32)
	if err != nil {
		return "", nil, fmt.Errorf("address %q: %w", address, err)
	}
	pod, podPort, err := c.podBehind(ctx, service, namespace, int32(number))
	if err != nil {
		return "", nil, fmt.Errorf("%s cannot be resolved from here (%v), and forwarding a port to it fails: %w", host, lookupErr, err)
	}
	local, end, err = c.forward(ctx, pod, podPort)
	if err != nil {
		return "", nil, fmt.Errorf("forward a port to pod %s/%s for %s: %w", pod.Namespace, pod.Name, address, err)
	}
	return local, end, nil
}

// serviceOf reads the name of a Service as the cluster's DNS spells it:
// name, name.namespace, name.namespace.svc or that with the cluster's domain.
func serviceOf(host, ownNamespace string) (name, namespace string, ok bool) {
	if net.ParseIP(host) != nil {
		return "", "", false
	}
	p := strings.Split(strings.TrimSuffix(host, "."), ".")
	switch {
	case len(p) == 1:
		return p[0], ownNamespace, true
	case len(p) == 2 || p[2] == "svc":
		return p[0], p[1], true
	default:
		return "", "", false
	}
}

// podBehind finds a ready pod of a Service, and its port for the Service's port.
func (c *Cluster) podBehind(ctx context.Context, name, namespace string, port int32) (*corev1.Pod, int32, error) {
	service := &corev1.Service{}
	if err := c.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, service); err != nil {
		return nil, 0, err
	}
	if len(service.Spec.Selector) == 0 {
		return nil, 0, fmt.Errorf("service %s/%s selects no pods", namespace, name)
	}
	pods := &corev1.PodList{}
	if err := c.Client.List(ctx, pods, client.InNamespace(namespace), client.MatchingLabels(service.Spec.Selector)); err != nil {
		return nil, 0, err
	}
	for i := range pods.Items {
		if pod := &pods.Items[i]; ready(pod) {
			target, err := targetPort(service, pod, port)
			return pod, target, err
		}
	}
	return nil, 0, fmt.Errorf("none of the %d pods of service %s/%s is ready", len(pods.Items), namespace, name)
}

func ready(pod *corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue && pod.DeletionTimestamp == nil
		}
	}
	return false
}

// targetPort is the pod's port that a Service's port leads to.
func targetPort(service *corev1.Service, pod *corev1.Pod, port int32) (int32, error) {
	for _, p := range service.Spec.Ports {
		if p.Port != port {
			continue
		}
		if p.TargetPort.Type == intstr.Int {
			if p.TargetPort.IntVal == 0 {
				return port, nil
			}
			return p.TargetPort.IntVal, nil
		}
		for _, container := range pod.Spec.Containers {
			for _, containerPort := range container.Ports {
				if containerPort.Name == p.TargetPort.StrVal {
					return containerPort.ContainerPort, nil
				}
			}
		}
		return 0, fmt.Errorf("pod %s has no port named %q", pod.Name, p.TargetPort.StrVal)
	}
	return 0, fmt.Errorf("service %s has no port %d", service.Name, port)
}

// forward opens a port on loopback that leads to a pod's port, through the API server.
func (c *Cluster) forward(ctx context.Context, pod *corev1.Pod, port int32) (string, func(), error) {
	dialer, err := c.dialer(pod)
	if err != nil {
		return "", nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	listening, ended, failed := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	f, err := portforward.NewOnAddressesForStreamingWithContext(ctx, dialer, []string{"127.0.0.1"},
		[]string{fmt.Sprintf("0:%d", port)}, listening, io.Discard, io.Discard)
	if err != nil {
		cancel()
		return "", nil, err
	}
	go func() {
		defer close(ended)
		failed <- f.ForwardPorts()
	}()
	end := func() { cancel(); <-ended }
	select {
	case <-listening:
	case err := <-failed:
		cancel()
		return "", nil, err
	case <-ctx.Done():
		end()
		return "", nil, ctx.Err()
	}
	ports, err := f.GetPorts()
	if err != nil {
		end()
		return "", nil, err
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(int(ports[0].Local))), end, nil
}

// dialer opens a connection to a pod over WebSocket, and over SPDY where a
// proxy on the way or an old API server does not let that through.
func (c *Cluster) dialer(pod *corev1.Pod) (httpstream.Dialer, error) {
	transport, upgrader, err := spdy.RoundTripperFor(c.config)
	if err != nil {
		return nil, err
	}
	host, err := url.Parse(c.config.Host)
	if err != nil || host.Host == "" {
		if host, err = url.Parse("https://" + c.config.Host); err != nil {
			return nil, err
		}
	}
	target := host.JoinPath("api", "v1", "namespaces", pod.Namespace, "pods", pod.Name, "portforward")
	over := spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, http.MethodPost, target)
	webSocket, err := portforward.NewSPDYOverWebsocketDialerForStreaming(target, c.config)
	if err != nil {
		return nil, err
	}
	return portforward.NewFallbackDialerForStreaming(webSocket, over, func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	}), nil
}
