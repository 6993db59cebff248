// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/substorm/substorm/hack/images/image"
)

const namespaceManifest = `apiVersion: v1
kind: Namespace
metadata:
  name: ` + namespace + `
  labels:
    pod-security.kubernetes.io/enforce: restricted
`

// install installs the charts. --wait is exact: it returns when Site and IngestGateway are ready, not when their pods run.
func (d *demo) install(ctx context.Context) error {
	manifest := filepath.Join(d.dir, "namespace.yaml")
	if err := os.WriteFile(manifest, []byte(namespaceManifest), 0o644); err != nil {
		return err
	}
	if _, err := d.output(ctx, d.kubectl, "apply", "-f", manifest); err != nil {
		return err
	}
	if err := d.renew(ctx); err != nil {
		return err
	}
	for _, release := range []struct{ name, chart string }{
		{"quickstart", "charts/substorm-quickstart"},
		{"substorm", "charts/substorm"},
		{"demo", "charts/substorm-site"},
	} {
		what := fmt.Sprintf("helm upgrade --install %s %s --wait", release.name, release.chart)
		_, err := d.step(ctx, what, d.helm, "upgrade", "--install", release.name, release.chart, "--namespace", namespace,
			"--set", "image.tag="+image.Tag(), "--wait", "--timeout", "5m")
		if err != nil {
			return err
		}
	}
	return nil
}

// declare applies the samples and waits until gateways receive for them, and a consumer follows.
func (d *demo) declare(ctx context.Context) error {
	if err := d.show(ctx, d.kubectl, "apply", "-f", "docs/samples/", "-f", "docs/samples/feeds/everything.yaml"); err != nil {
		return err
	}
	for _, what := range []string{"feed/" + feed, "feedconsumer/" + consumer} {
		if _, err := d.step(ctx, what+" ready", d.kubectl, "-n", namespace, "wait", "--for=condition=Ready", "--timeout=5m", what); err != nil {
			return err
		}
	}
	_, err := d.step(ctx, "instruments ready", d.kubectl, "-n", namespace, "wait", "--recursive=false", "--for=condition=Ready", "--timeout=5m", "-f", "docs/samples/")
	return err
}
