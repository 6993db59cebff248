// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
)

// Getter finds the cluster for kubectl's own commands: it is a genericclioptions.RESTClientGetter.
type Getter struct{ *Flags }

// ToRESTConfig returns how to reach the API server.
func (g Getter) ToRESTConfig() (*rest.Config, error) {
	config, err := g.ToRawKubeConfigLoader().ClientConfig()
	if err != nil {
		return nil, findError(err)
	}
	return config, nil
}

// ToDiscoveryClient returns what asks which kinds there are, once.
func (g Getter) ToDiscoveryClient() (discovery.CachedDiscoveryInterface, error) {
	config, err := g.ToRESTConfig()
	if err != nil {
		return nil, err
	}
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	return memory.NewMemCacheClient(client), nil
}

// ToRESTMapper returns the kinds by all their names.
func (g Getter) ToRESTMapper() (meta.RESTMapper, error) {
	client, err := g.ToDiscoveryClient()
	if err != nil {
		return nil, err
	}
	return restmapper.NewShortcutExpander(restmapper.NewDeferredDiscoveryRESTMapper(client), client, nil), nil
}

// ToRawKubeConfigLoader returns what finds the cluster and the namespace.
func (g Getter) ToRawKubeConfigLoader() clientcmd.ClientConfig {
	overrides := &clientcmd.ConfigOverrides{CurrentContext: g.Context}
	overrides.Context.Namespace = g.Namespace
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(g.Rules(), overrides)
}

// Rules say where a kubeconfig is looked for. The last place is the Site that runs on this computer.
func (f Flags) Rules() *clientcmd.ClientConfigLoadingRules {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = f.Kubeconfig
	if os.Getenv(clientcmd.RecommendedConfigPathEnvVar) == "" {
		rules.Precedence = append(rules.Precedence, StandaloneKubeconfig(StandaloneDir()))
	}
	return rules
}

func findError(err error) error {
	return fmt.Errorf("find the cluster: %w: name a kubeconfig with --kubeconfig or $KUBECONFIG, or run a Site on this computer: substorm up --help", err)
}

// StandaloneDir is the data folder of `substorm up` that nobody chose: for services the one that systemd gives them, for people one in their
// home (XDG Base Directory Specification).
func StandaloneDir() string {
	if dir := os.Getenv("STATE_DIRECTORY"); dir != "" {
		return dir
	}
	if dir := os.Getenv("XDG_DATA_HOME"); dir != "" {
		return filepath.Join(dir, "substorm")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "substorm-data"
	}
	return filepath.Join(home, ".local", "share", "substorm")
}

// StandaloneKubeconfig is the file in a data folder of `substorm up` that lets commands in.
func StandaloneKubeconfig(dataDir string) string { return filepath.Join(dataDir, "api", "kubeconfig") }
