// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"os/exec"
	"strings"
	"text/template"

	"github.com/spf13/cobra"

	"github.com/substorm/substorm/hack/images/image"
	"github.com/substorm/substorm/hack/progress"
)

// metricsTag marks the image of metrics-server, which does not follow the checkout's VERSION.
const metricsTag = "cluster"

//go:embed metrics-server.yaml
var metricsManifest string

func metricsServerCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use: "metrics-server", Args: cobra.NoArgs,
		Short: "Run metrics-server, by which HorizontalPodAutoscalers and kubectl top know what pods use",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return o.withMade(cmd.Context(), func(d driver, p *progress.Printer) error { return runMetricsServer(cmd.Context(), d, p) })
		},
	}
}

// runMetricsServer returns once metrics-server answers through the API server. It is ready when it has asked each kubelet.
func runMetricsServer(ctx context.Context, d driver, p *progress.Printer) (err error) {
	built, err := image.Build(ctx, p, "metrics-server", metricsTag)
	if err != nil {
		return err
	}
	if err := d.Load(ctx, built.Path); err != nil {
		return err
	}
	// kind's kubelets sign their certificates themselves.
	trust := "--kubelet-certificate-authority=/authority/ca.crt"
	if _, ok := d.(kindDriver); ok {
		trust = "--kubelet-insecure-tls"
	}
	manifest := &bytes.Buffer{}
	values := map[string]string{"Image": "substorm/metrics-server:" + metricsTag, "KubeletTrust": trust}
	if err := template.Must(template.New("").Option("missingkey=error").Parse(metricsManifest)).Execute(manifest, values); err != nil {
		return err
	}
	step := p.Step("metrics-server")
	defer func() { step.Done(err) }()
	for _, call := range []struct {
		stdin []byte
		args  []string
	}{
		{manifest.Bytes(), []string{"apply", "--server-side", "--field-manager=hack-cluster", "-f", "-"}},
		{nil, []string{"-n", "kube-system", "rollout", "status", "deployment/metrics-server", "--timeout=120s"}},
		{nil, []string{"wait", "apiservice/v1beta1.metrics.k8s.io", "--for=condition=Available", "--timeout=60s"}},
	} {
		if err := kubectl(ctx, d, call.stdin, call.args...); err != nil {
			return err
		}
	}
	return nil
}

// kubectl runs it as the cluster's administrator.
func kubectl(ctx context.Context, d driver, stdin []byte, args ...string) error {
	path, err := d.Kubectl(ctx)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, path, append([]string{"--kubeconfig=" + d.Kubeconfig()}, args...)...)
	cmd.Stdin = bytes.NewReader(stdin)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
