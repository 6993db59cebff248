// SPDX-License-Identifier: Apache-2.0

//go:build linux

package up

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan"
)

// Where the first FeedServer serves, and where metrics are, that nobody places elsewhere.
const (
	DefaultListen        = "127.0.0.1:8080"
	DefaultListenMetrics = "127.0.0.1:9464"
)

// listeners are where FeedServers serve: each has an address of its own, in the order in which they were seen.
type listeners struct {
	host string
	port int
	*table
}

type table struct {
	sync.Mutex
	ports map[types.NamespacedName]int
}

func newListeners(first string) (listeners, error) {
	host, text, err := net.SplitHostPort(first)
	if err != nil {
		return listeners{}, fmt.Errorf("--listen %q: it must be host:port, such as 127.0.0.1:8080, or :8080 for all addresses", first)
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil || port == 0 {
		return listeners{}, fmt.Errorf("--listen %q: %q is no port", first, text)
	}
	return listeners{host, int(port), &table{ports: map[types.NamespacedName]int{}}}, nil
}

func (l listeners) at(server types.NamespacedName) int {
	l.Lock()
	defer l.Unlock()
	port, known := l.ports[server]
	if !known {
		port = l.port + len(l.ports)
		l.ports[server] = port
	}
	return port
}

// of returns where the FeedServer of a pod is to listen.
func (l listeners) of(pod types.NamespacedName) string {
	pod.Name = strings.TrimSuffix(pod.Name, "-"+plan.FeedServerProgram+"-0")
	return l.address(l.at(pod))
}

func (l listeners) address(port int) string { return net.JoinHostPort(l.host, strconv.Itoa(port)) }

// url returns where a FeedServer serves that names no URL.
func (l listeners) url(server *v1alpha1.FeedServer) string {
	host := l.host
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	scheme := "http://"
	if server.Spec.TLS != nil {
		scheme = "https://"
	}
	return scheme + net.JoinHostPort(host, strconv.Itoa(l.at(types.NamespacedName{Namespace: server.Namespace, Name: server.Name})))
}
