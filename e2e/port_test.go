// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"net"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/substorm/substorm/operator/api/v1alpha1"
)

// TestPortChange measures how long an Instrument's new port takes: from the API
// server's answer to the first accepted connection on a gateway pod's address,
// and through the NodePort.
func TestPortChange(t *testing.T) {
	l := theLab
	l.apply(t, instrumentTCP("moving-camera", 30121))
	l.waitReady(t, "instrument/moving-camera")
	pod, node := l.readyGateway(t)

	const changes = 20
	var direct, nodePort []time.Duration
	for i := range changes {
		port := 30121 + (i+1)%2
		answered := l.movePort(t, "moving-camera", port)
		direct = append(direct, untilAccepted(t, answered, net.JoinHostPort(pod, fmt.Sprint(port))))
		nodePort = append(nodePort, untilAccepted(t, answered, net.JoinHostPort(node, fmt.Sprint(port))))
		waitRefused(t, net.JoinHostPort(pod, fmt.Sprint(30121+i%2)))
	}
	slices.Sort(direct)
	slices.Sort(nodePort)
	fmt.Printf("port change to first accepted connection, median of %d: %v on the pod's address (goal < 1s), %v through the NodePort\n",
		changes, direct[changes/2].Round(time.Millisecond), nodePort[changes/2].Round(time.Millisecond))
}

// movePort changes the port of an Instrument's first listener and returns when the
// API server answered.
func (l *lab) movePort(t testing.TB, instrument string, port int) time.Time {
	t.Helper()
	patch := fmt.Sprintf(`[{"op":"replace","path":"/spec/listeners/0/port","value":%d}]`, port)
	_, err := l.instruments(t).Patch(t.Context(), instrument, types.JSONPatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return time.Now()
}

// instruments is a client of the API server for Instruments.
func (l *lab) instruments(t testing.TB) dynamic.ResourceInterface {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", l.kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client.Resource(v1alpha1.GroupVersion.WithResource("instruments")).Namespace(namespace)
}

// untilAccepted returns the time from since to the first accepted connection.
func untilAccepted(t testing.TB, since time.Time, address string) time.Duration {
	t.Helper()
	for time.Since(since) < patience {
		conn, err := net.DialTimeout("tcp", address, 200*time.Millisecond)
		if err == nil {
			took := time.Since(since)
			_ = conn.Close()
			return took
		}
		time.Sleep(2 * time.Millisecond) // the resolution of what is measured
	}
	t.Fatalf("%s accepted no connection within %v", address, patience)
	return 0
}
