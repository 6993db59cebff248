// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Address is the pods' own: they are on this machine.
const Address = "127.0.0.1"

// workload is a StatefulSet, a Deployment or a Job, as far as it says what to run.
type workload struct {
	kind       string
	meta       *metav1.ObjectMeta
	replicas   int32
	template   *corev1.PodTemplateSpec
	claims     []corev1.PersistentVolumeClaim
	deployment *appsv1.Deployment
	set        *appsv1.StatefulSet
	job        *batchv1.Job
}

func ofSet(set *appsv1.StatefulSet) workload {
	return workload{kind: "StatefulSet", meta: &set.ObjectMeta, replicas: replicas(set.Spec.Replicas), template: &set.Spec.Template,
		claims: set.Spec.VolumeClaimTemplates, set: set}
}

func ofDeployment(d *appsv1.Deployment) workload {
	return workload{kind: "Deployment", meta: &d.ObjectMeta, replicas: replicas(d.Spec.Replicas), template: &d.Spec.Template, deployment: d}
}

func replicas(asked *int32) int32 {
	if asked == nil {
		return 1
	}
	return *asked
}

// podName is the name of a workload's only pod.
func (w workload) podName() types.NamespacedName {
	return types.NamespacedName{Namespace: w.meta.Namespace, Name: w.meta.Name + "-0"}
}

// pod is what a workload's pod is to be.
type pod struct {
	name      types.NamespacedName
	program   string
	arguments []string
	// folders are those that are made before it starts, and emptied those of them whose content goes then.
	folders, emptied []string
	// files are what is mounted of Secrets, by their paths.
	files map[string][]byte
	// once: it is not started again when it has ended.
	once bool
	// revision tells two pods apart that need another start. The content of files is not part of it: programs read changed files again.
	revision string
}

// newPod plans the pod of a workload. Folder is where volumes lie. The error says what it still lacks, a Secret say.
func newPod(folder string, w workload, secrets map[string]map[string][]byte) (*pod, error) {
	if len(w.template.Spec.Containers) != 1 {
		return nil, fmt.Errorf("its pod has %d containers: pods of one run here", len(w.template.Spec.Containers))
	}
	container := &w.template.Spec.Containers[0]
	p := &pod{name: w.podName(), program: container.Name, files: map[string][]byte{}, once: w.job != nil}
	places := map[string]string{}
	for i := range container.VolumeMounts {
		m := &container.VolumeMounts[i]
		place, err := p.mount(folder, m.Name, w, secrets)
		if err != nil {
			return nil, err
		}
		places[m.MountPath] = place
	}
	values := p.environment(container, w)
	for _, a := range container.Args {
		p.arguments = append(p.arguments, placed(expanded(a, values), places))
	}
	sum, err := json.Marshal([]any{p.program, p.arguments})
	if err != nil {
		return nil, err
	}
	digest := sha256.Sum256(sum)
	p.revision = hex.EncodeToString(digest[:8])
	return p, nil
}

// podsFolder has the files of all pods but those that outlast them.
const podsFolder = "pods"

// filesOf is the folder that has those of a pod.
func filesOf(folder string, pod types.NamespacedName) string {
	return filepath.Join(folder, podsFolder, pod.Namespace, pod.Name)
}

// mount returns the folder that a volume is.
func (p *pod) mount(folder, volume string, w workload, secrets map[string]map[string][]byte) (string, error) {
	for i := range w.claims {
		if w.claims[i].Name == volume {
			place := filepath.Join(folder, "volumes", p.name.Namespace, volume+"-"+p.name.Name)
			p.folders = append(p.folders, place)
			return place, nil
		}
	}
	i := slices.IndexFunc(w.template.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == volume })
	if i < 0 {
		return "", fmt.Errorf("its pod has no volume %q", volume)
	}
	place := filepath.Join(filesOf(folder, p.name), volume)
	p.folders = append(p.folders, place)
	switch source := w.template.Spec.Volumes[i]; {
	case source.EmptyDir != nil:
		p.emptied = append(p.emptied, place)
		return place, nil
	case source.Secret != nil:
		return place, p.secret(place, source.Secret.SecretName, source.Secret.Items, secrets)
	case source.Projected != nil:
		for _, s := range source.Projected.Sources {
			if s.Secret == nil {
				return "", fmt.Errorf("volume %q projects something other than a Secret", volume)
			}
			if err := p.secret(place, s.Secret.Name, s.Secret.Items, secrets); err != nil {
				return "", err
			}
		}
		return place, nil
	default:
		return "", fmt.Errorf("volume %q is of a kind that does not exist here", volume)
	}
}

// secret adds the files of a Secret's keys; all keys, if none is named.
func (p *pod) secret(place, name string, items []corev1.KeyToPath, secrets map[string]map[string][]byte) error {
	data, found := secrets[name]
	if !found {
		return fmt.Errorf("Secret %q does not exist", name)
	}
	if len(items) == 0 {
		for key, value := range data {
			p.files[filepath.Join(place, key)] = value
		}
		return nil
	}
	for _, item := range items {
		value, found := data[item.Key]
		if !found {
			return fmt.Errorf("Secret %q has no key %q", name, item.Key)
		}
		p.files[filepath.Join(place, item.Path)] = value
	}
	return nil
}

// environment are the values that arguments name.
func (p *pod) environment(c *corev1.Container, w workload) map[string]string {
	fields := map[string]string{"metadata.name": p.name.Name, "spec.nodeName": nodeName(), "status.podIP": Address}
	if w.job != nil {
		fields["metadata.labels['"+batchv1.JobNameLabel+"']"] = w.job.Name
	}
	values := map[string]string{}
	for _, e := range c.Env {
		values[e.Name] = e.Value
		if e.ValueFrom != nil && e.ValueFrom.FieldRef != nil {
			values[e.Name] = fields[e.ValueFrom.FieldRef.FieldPath]
		}
	}
	return values
}

// expanded replaces $(NAME), as the kubelet does.
func expanded(argument string, values map[string]string) string {
	for name, value := range values {
		argument = strings.ReplaceAll(argument, "$("+name+")", value)
	}
	return argument
}

// placed has the value of a flag name the folder that is mounted where it says. If folders lie within each other, the inner one counts.
func placed(argument string, places map[string]string) string {
	flag, value, found := strings.Cut(argument, "=")
	if !found {
		return argument
	}
	best := ""
	for at := range places {
		if (value == at || strings.HasPrefix(value, at+"/")) && len(at) > len(best) {
			best = at
		}
	}
	if best == "" {
		return argument
	}
	return flag + "=" + places[best] + strings.TrimPrefix(value, best)
}
