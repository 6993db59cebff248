// SPDX-License-Identifier: Apache-2.0

//go:build linux

package up

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/substorm/substorm/cli/up/manifests"
	"github.com/substorm/substorm/internal/usage"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/workload"
)

// Default addresses of the first FeedServer, and of metrics.
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
	host, port, err := splitAddress("--listen", first, DefaultListen+", or :8080 for all addresses")
	if err == nil && port == 0 {
		err = usage.Errorf("--listen %q: port 0 is not allowed here: name a port, as in %s", first, DefaultListen)
	}
	if err != nil {
		return listeners{}, err
	}
	return listeners{host, port, &table{ports: map[types.NamespacedName]int{}}}, nil
}

// CheckAddresses looks at flags that say where to listen. Empty ones leave it to others. The error is a usage.Error.
func CheckAddresses(listen, listenAPI, listenMetrics string) error {
	if _, err := newListeners(listen); err != nil {
		return err
	}
	for _, f := range []struct{ flag, value, such string }{
		{"--listen-api", listenAPI, "127.0.0.1:6443, or 127.0.0.1:0 for a free port"}, {"--listen-metrics", listenMetrics, DefaultListenMetrics}} {
		if f.value == "" {
			continue
		}
		if _, _, err := splitAddress(f.flag, f.value, f.such); err != nil {
			return err
		}
	}
	return nil
}

// checkIngest looks at --listen-ingest.
func checkIngest(address string) error {
	if address == "" {
		return nil
	}
	if _, err := netip.ParseAddr(address); err != nil {
		return usage.Errorf("--listen-ingest %q: it must be an IP address without a port, such as 127.0.0.1: the ports are those of Instruments", address)
	}
	return nil
}

// ingestHost is where instruments send to, where the gateways receive at one address; empty where they receive at all.
func ingestHost(address string) string {
	if ip, err := netip.ParseAddr(address); err != nil || ip.IsUnspecified() {
		return ""
	}
	return address
}

// splitAddress reads host:port of a flag; such is an example.
func splitAddress(flag, value, such string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(value)
	if err != nil {
		return "", 0, usage.Errorf("%s %q: it must be host:port, such as %s", flag, value, such)
	}
	number, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return "", 0, usage.Errorf("%s %q: %q is not a port: it must be host:port, such as %s", flag, value, text, such)
	}
	return host, int(number), nil
}

// available errs where another program listens at an address of a declared FeedServer, or none may.
func (l listeners) available(ctx context.Context, declared []*manifests.Object) error {
	port := l.port
	for _, o := range declared {
		if o.GetKind() != "FeedServer" {
			continue
		}
		taken, err := new(net.ListenConfig).Listen(ctx, "tcp", l.address(port))
		if err != nil {
			return fmt.Errorf("--listen: FeedServer %q: %w: choose another address", o.GetName(), err)
		}
		_ = taken.Close()
		port++
	}
	return nil
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
	pod.Name = strings.TrimSuffix(pod.Name, "-"+workload.FeedServerProgram+"-0")
	return l.address(l.at(pod))
}

// rsync returns where a FeedServer with these arguments is to serve rsync: at the port that they name, and for the clients of its other
// address. Empty: nowhere.
func (l listeners) rsync(arguments []string) string {
	for _, a := range arguments {
		if at, ok := strings.CutPrefix(a, workload.FlagRsyncAddress); ok {
			_, port, _ := net.SplitHostPort(at)
			return net.JoinHostPort(l.host, port)
		}
	}
	return ""
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
