// SPDX-License-Identifier: Apache-2.0

// Package tool has the real parts (servers and tools) that tests, demo and cluster run: it builds each from its Go
// module, pinned in hack/tools, once, and remembers where it lies.
package tool

import (
	"fmt"
	"strings"
)

// Tool is one program that is built from a module in hack/tools.
type Tool struct {
	Name   string // of the program, as Path takes it
	Module string // folder in hack/tools whose go.mod pins it
	// Package is the import path of its main package.
	Package string
	// Source is the module whose version is the program's own. Empty when the program carries its version itself.
	Source string
	// Set lists variables that get a value by the linker's -X: {version} and {minor} stand for Source's version.
	Set []string
	// KeepPaths leaves -trimpath out. With it, packages of replaced modules would no longer be shared between the
	// programs of a module and Kubernetes would compile several times over.
	KeepPaths bool
	// OnDemand leaves the program out when everything is built: few people need it.
	OnDemand bool
}

// kubernetesVersion is what the API server answers to /version; without it clients take the server for v0.0.0.
var kubernetesVersion = versionOf("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")

func versionOf(packages ...string) []string {
	var set []string
	for _, p := range packages {
		set = append(set, p+".gitVersion={version}", p+".gitMajor=1", p+".gitMinor={minor}",
			p+".gitTreeState=archive", p+".buildDate=1970-01-01T00:00:00Z")
	}
	return set
}

func kubernetes(name string) Tool {
	return Tool{Name: name, Module: "kubernetes", Package: "k8s.io/kubernetes/cmd/" + name,
		Source: "k8s.io/kubernetes", Set: kubernetesVersion, KeepPaths: true}
}

// All lists every tool, in the order in which they are built. etcd and the API server come first: most tests wait for
// those two.
func All() []Tool {
	return []Tool{
		{Name: "nats-server", Module: "nats", Package: "github.com/nats-io/nats-server/v2"},
		{Name: "etcd", Module: "kubernetes", Package: "go.etcd.io/etcd/server/v3", KeepPaths: true},
		kubernetes("kube-apiserver"),
		kubernetes("kubectl"),
		{Name: "minio", Module: "minio", Package: "github.com/minio/minio"},
		{Name: "controller-gen", Module: "controller-gen", Package: "sigs.k8s.io/controller-tools/cmd/controller-gen"},
		kubernetes("kube-controller-manager"),
		kubernetes("kube-scheduler"),
		kubernetes("kubelet"),
		kubernetes("kube-proxy"),
		{Name: "coredns", Module: "kubernetes", Package: "./coredns", KeepPaths: true},
		{Name: "helm", Module: "helm", Package: "helm.sh/helm/v4/cmd/helm", Source: "helm.sh/helm/v4",
			Set: []string{"helm.sh/helm/v4/internal/version.version={version}"}},
		// golangci-lint with kube-api-linter built into it, for it takes no linters when it runs.
		{Name: "golangci-lint", Module: "golangci-lint", Package: "sigs.k8s.io/kube-api-linter/cmd/golangci-lint-kube-api-linter"},
		{Name: "gotestsum", Module: "gotestsum", Package: "gotest.tools/gotestsum"},
		{Name: "kind", Module: "kind", Package: "sigs.k8s.io/kind", OnDemand: true},
		{Name: "telegraf", Module: "telegraf", Package: "./telegraf", OnDemand: true},
		// It keeps its paths to share the packages that Kubernetes' own programs have compiled already.
		{Name: "metrics-server", Module: "metrics-server", Package: "sigs.k8s.io/metrics-server/cmd/metrics-server", Source: "sigs.k8s.io/metrics-server",
			Set: []string{"k8s.io/client-go/pkg/version.gitVersion={version}"}, KeepPaths: true, OnDemand: true},
	}
}

// Find returns the tool of that name, or an error that lists the names there are.
func Find(name string) (Tool, error) {
	var names []string
	for _, t := range All() {
		if t.Name == name {
			return t, nil
		}
		names = append(names, t.Name)
	}
	return Tool{}, fmt.Errorf("no part is called %q; there are: %s", name, strings.Join(names, ", "))
}

// flags returns the arguments of go build that decide what the program is, given its module's go.mod.
func (t Tool) flags(goMod string) ([]string, error) {
	link := "-s -w"
	if t.Source != "" {
		version, err := requiredVersion(goMod, t.Source)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", t.Name, err)
		}
		minor := strings.SplitN(version, ".", 3)[1]
		for _, s := range t.Set {
			link += " -X " + strings.NewReplacer("{version}", version, "{minor}", minor).Replace(s)
		}
	}
	flags := []string{"-buildvcs=false", "-ldflags=" + link}
	if !t.KeepPaths {
		flags = append(flags, "-trimpath")
	}
	return flags, nil
}

// requiredVersion reads a module's version from the text of a go.mod, such as v1.36.3.
func requiredVersion(goMod, module string) (string, error) {
	for line := range strings.Lines(goMod) {
		fields := strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "require "))
		if len(fields) >= 2 && fields[0] == module && strings.Count(fields[1], ".") >= 2 {
			return fields[1], nil
		}
	}
	return "", fmt.Errorf("go.mod does not require %s", module)
}
