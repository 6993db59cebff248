// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func TestServiceOf(t *testing.T) {
	for host, want := range map[string]string{
		"nats":                            "aurora/nats",
		"nats.substorm":                   "substorm/nats",
		"nats.substorm.svc":               "substorm/nats",
		"nats.substorm.svc.cluster.local": "substorm/nats",
		"nats.substorm.svc.":              "substorm/nats",
		"s3.eu-central-1.amazonaws.com":   "",
		"192.0.2.1":                       "",
		"2001:db8::1":                     "",
	} {
		name, namespace, ok := serviceOf(host, "aurora")
		got := ""
		if ok {
			got = namespace + "/" + name
		}
		if got != want {
			t.Errorf("%s: service %q, want %q", host, got, want)
		}
	}
}

func TestTargetPort(t *testing.T) {
	service := &corev1.Service{Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{
		{Port: 9000, TargetPort: intstr.FromString("s3")}, {Port: 4222, TargetPort: intstr.FromInt32(14222)}, {Port: 80}, {Port: 1, TargetPort: intstr.FromString("none")},
	}}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{Containers: []corev1.Container{
		{Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}}}, {Ports: []corev1.ContainerPort{{Name: "s3", ContainerPort: 19000}}},
	}}}
	for port, want := range map[int32]int32{9000: 19000, 4222: 14222, 80: 80, 1: 0, 7: 0} {
		got, err := targetPort(service, pod, port)
		if got != want || (err == nil) != (want != 0) {
			t.Errorf("port %d: got %d, %v; want %d", port, got, err, want)
		}
	}
}

func TestReady(t *testing.T) {
	is := func(status corev1.ConditionStatus) *corev1.Pod {
		return &corev1.Pod{Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: status}}}}
	}
	leaving := is(corev1.ConditionTrue)
	leaving.DeletionTimestamp = &metav1.Time{}
	for name, c := range map[string]struct {
		pod  *corev1.Pod
		want bool
	}{"ready": {is("True"), true}, "not ready": {is("False"), false}, "new": {&corev1.Pod{}, false}, "leaving": {leaving, false}} {
		if got := ready(c.pod); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
