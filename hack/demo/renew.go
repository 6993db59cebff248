// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/substorm/substorm/hack/images/image"
)

// renew deletes the pods of an earlier demo that run other builds of our images than the ones just loaded: tag and manifest are the same,
// so nothing else would.
func (d *demo) renew(ctx context.Context) error {
	out, err := d.output(ctx, d.kubectl, "-n", namespace, "get", "pods", "-o", "json")
	if err != nil {
		return err
	}
	var pods corev1.PodList
	if err := json.Unmarshal([]byte(out), &pods); err != nil {
		return fmt.Errorf("read the pods: %w", err)
	}
	if len(pods.Items) == 0 {
		return nil
	}
	want := map[string]string{} // digest of the image's configuration by name
	for _, name := range image.Names() {
		built, err := image.Build(ctx, d.p, name, image.Tag())
		if err != nil {
			return err
		}
		want[built.Ref] = built.Digest
	}
	for i := range pods.Items {
		if stale(&pods.Items[i], want) {
			d.p.Line("pod %s runs an older build of its image: recreating it", pods.Items[i].Name)
			if _, err := d.output(ctx, d.kubectl, "-n", namespace, "delete", "pod", pods.Items[i].Name); err != nil {
				return err
			}
		}
	}
	return nil
}

func stale(pod *corev1.Pod, want map[string]string) bool {
	for _, c := range pod.Status.ContainerStatuses {
		for ref, digest := range want {
			if strings.HasSuffix(c.Image, ref) && !strings.HasSuffix(c.ImageID, digest) {
				return true
			}
		}
	}
	return false
}
