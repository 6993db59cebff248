// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// aSet is like those that the operator plans.
func aSet() *appsv1.StatefulSet {
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: "aurora", Name: "north"}}
	set.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}}}
	set.Spec.Template.Spec = corev1.PodSpec{
		Volumes: []corev1.Volume{
			{Name: "s3", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s3"}}},
			{Name: "tls", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
				{Secret: &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "s3"}, Items: []corev1.KeyToPath{{Key: "id", Path: "user"}}}}}}}},
			{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		},
		Containers: []corev1.Container{{
			Name: "gateway",
			Env: []corev1.EnvVar{
				{Name: "POD_NAME", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}},
				{Name: "POD_IP", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.podIP"}}}},
			Args: []string{"--gateway=$(POD_NAME)", "--pod-ip=$(POD_IP)", "--data-dir=/data", "--keys=/etc/s3/id", "--tls=/etc/s3/tls", "--other=/etc/s3-other", "--flag"},
			VolumeMounts: []corev1.VolumeMount{
				{Name: "data", MountPath: "/data"}, {Name: "s3", MountPath: "/etc/s3"}, {Name: "tls", MountPath: "/etc/s3/tls"}, {Name: "scratch", MountPath: "/scratch"}},
		}},
	}
	return set
}

func TestPod(t *testing.T) {
	dir := t.TempDir()
	secrets := map[string]map[string][]byte{"s3": {"id": []byte("me"), "secret": []byte("hidden")}}
	p, err := newPod(dir, ofSet(aSet()), secrets)
	if err != nil {
		t.Fatal(err)
	}
	at := func(names ...string) string { return filepath.Join(append([]string{dir}, names...)...) }
	want := []string{"--gateway=north-0", "--pod-ip=127.0.0.1", "--data-dir=" + at("volumes/aurora/data-north-0"), "--keys=" + at("pods/aurora/north-0/s3/id"),
		"--tls=" + at("pods/aurora/north-0/tls"), "--other=/etc/s3-other", "--flag"}
	if got := strings.Join(p.arguments, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("arguments\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
	kept := at("volumes/aurora/data-north-0/spool")
	if err := p.prepare(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(kept, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	left := at("pods/aurora/north-0/scratch/left")
	if err := os.WriteFile(left, nil, 0o600); err != nil {
		t.Fatal(err)
	}

	// The Secret changes: a running program keeps running, and finds the new files.
	secrets["s3"] = map[string][]byte{"id": []byte("you")}
	again, err := newPod(dir, ofSet(aSet()), secrets)
	if err != nil || again.revision != p.revision {
		t.Fatalf("a changed Secret has the program started again: %v", err)
	}
	if err := again.writeFiles(); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{"pods/aurora/north-0/s3/id": "you", "pods/aurora/north-0/tls/user": "you"} {
		if is, err := os.ReadFile(at(path)); err != nil || string(is) != want {
			t.Errorf("%s holds %q, %v", path, is, err)
		}
	}
	if _, err := os.Stat(at("pods/aurora/north-0/s3/secret")); err == nil {
		t.Error("a key that is gone is still a file")
	}
	if info, err := os.Stat(at("pods/aurora/north-0/s3/id")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file of a Secret: %v, %v", info, err)
	}

	// A new start empties scratch folders, and no volume.
	if err := again.prepare(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(left); err == nil {
		t.Error("a scratch folder is not emptied")
	}
	if _, err := os.Stat(kept); err != nil {
		t.Errorf("a volume is emptied: %v", err)
	}
}

// TestPodLacks: a pod that lacks something says what.
func TestPodLacks(t *testing.T) {
	secrets := map[string]map[string][]byte{"s3": {"id": nil}}
	for name, c := range map[string]struct {
		change  func(*appsv1.StatefulSet)
		secrets map[string]map[string][]byte
		says    string
	}{
		"a Secret":    {func(*appsv1.StatefulSet) {}, nil, `Secret "s3" does not exist`},
		"a key":       {func(*appsv1.StatefulSet) {}, map[string]map[string][]byte{"s3": {}}, `Secret "s3" has no key "id"`},
		"a volume":    {func(s *appsv1.StatefulSet) { s.Spec.Template.Spec.Volumes = nil }, secrets, `no volume "s3"`},
		"host path":   {func(s *appsv1.StatefulSet) { s.Spec.Template.Spec.Volumes[0].VolumeSource = corev1.VolumeSource{} }, secrets, "of a kind that does not exist here"},
		"a container": {func(s *appsv1.StatefulSet) { s.Spec.Template.Spec.Containers = nil }, secrets, "0 containers"},
	} {
		set := aSet()
		c.change(set)
		if _, err := newPod(t.TempDir(), ofSet(set), c.secrets); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("without %s: %v", name, err)
		}
	}
}
