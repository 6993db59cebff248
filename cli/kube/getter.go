// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
)

// Getter finds the cluster for kubectl's own commands: it is a genericclioptions.RESTClientGetter.
type Getter struct {
	*Flags
	discovery func() (discovery.CachedDiscoveryInterface, error)
}

// NewGetter returns a Getter by flags, which need not be parsed yet.
func NewGetter(flags *Flags) *Getter {
	g := &Getter{Flags: flags}
	g.discovery = sync.OnceValues(g.discover)
	return g
}

// ToRESTConfig returns how to reach the API server.
func (g *Getter) ToRESTConfig() (*rest.Config, error) {
	config, err := g.Loader().ClientConfig()
	if err != nil {
		return nil, findError(err)
	}
	return config, nil
}

// ToDiscoveryClient returns what asks which kinds there are, once.
func (g *Getter) ToDiscoveryClient() (discovery.CachedDiscoveryInterface, error) {
	return g.discovery()
}

func (g *Getter) discover() (discovery.CachedDiscoveryInterface, error) {
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
func (g *Getter) ToRESTMapper() (meta.RESTMapper, error) {
	client, err := g.ToDiscoveryClient()
	if err != nil {
		return nil, err
	}
	return restmapper.NewShortcutExpander(restmapper.NewDeferredDiscoveryRESTMapper(client), client, nil), nil
}

// ToRawKubeConfigLoader returns what finds the cluster and the namespace.
func (g *Getter) ToRawKubeConfigLoader() clientcmd.ClientConfig { return loader{g.Loader()} }

// loader has errors that say how to name a cluster.
type loader struct{ configured }

// configured is another name of the interface, which has a method called ClientConfig.
type configured = clientcmd.ClientConfig

// Namespace implements clientcmd.ClientConfig.
func (l loader) Namespace() (name string, given bool, err error) {
	if name, given, err = l.configured.Namespace(); err != nil {
		err = findError(err)
	}
	return name, given, err
}

// Loader finds the cluster and the namespace.
func (f Flags) Loader() clientcmd.ClientConfig {
	overrides := &clientcmd.ConfigOverrides{CurrentContext: f.Context}
	overrides.Context.Namespace = f.Namespace
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(f.Rules(), overrides)
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
	if files := os.Getenv(clientcmd.RecommendedConfigPathEnvVar); clientcmd.IsEmptyConfig(err) && files != "" {
		return fmt.Errorf("$KUBECONFIG is %s: the file does not exist, or names no cluster", files)
	}
	if clientcmd.IsEmptyConfig(err) { // client-go's text, which kubectl's commands would print alone, names a variable that has no effect
		return errors.New("no cluster is named: name a kubeconfig with --kubeconfig or $KUBECONFIG, or run a Site on this computer: substorm up --help")
	}
	return fmt.Errorf("find the cluster: %w: name a kubeconfig with --kubeconfig or $KUBECONFIG, or run a Site on this computer: substorm up --help", err)
}

// StandaloneDir is the default data folder of `substorm up`: for services the one that systemd gives them, for people one in their home
// (XDG Base Directory Specification).
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

// AddDataDir adds the flag that names a data folder of `substorm up`. Help and reference name the places, not those of who asks.
func AddDataDir(flags *pflag.FlagSet, dir *string, usage string) {
	flags.StringVar(dir, "data-dir", StandaloneDir(), usage)
	flags.Lookup("data-dir").DefValue = "$STATE_DIRECTORY, $XDG_DATA_HOME/substorm or ~/.local/share/substorm"
}

// StandaloneKubeconfig is the file in a data folder of `substorm up` that lets commands in.
func StandaloneKubeconfig(dataDir string) string { return filepath.Join(dataDir, "api", "kubeconfig") }
