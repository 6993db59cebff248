// SPDX-License-Identifier: Apache-2.0

// Package apiserver starts a real etcd and kube-apiserver with Substorm's CRDs
// for tests.
package apiserver

import (
	"fmt"
	"path/filepath"
	"sync"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/substorm/substorm/hack/parts/tool"
	"github.com/substorm/substorm/hack/paths"
)

// Server is a running API server.
type Server struct {
	Config *rest.Config
	env    *envtest.Environment
	// users: envtest's authority makes one certificate at a time.
	users sync.Mutex
}

// Start starts an API server on loopback; with CRDs, unless bare. The caller
// stops it.
func Start(bare bool) (*Server, error) {
	program, err := tool.Path("kube-apiserver")
	if err != nil {
		return nil, err
	}
	if _, err := tool.Path("etcd"); err != nil {
		return nil, err
	}
	checkout, err := paths.Checkout()
	if err != nil {
		return nil, err
	}
	env := &envtest.Environment{BinaryAssetsDirectory: filepath.Dir(program)}
	if !bare {
		env.CRDDirectoryPaths = []string{filepath.Join(checkout, "crds")}
		env.ErrorIfCRDPathMissing = true
	}
	cfg, err := env.Start()
	if err != nil {
		return nil, fmt.Errorf("start the API server: %w", err)
	}
	cfg.QPS, cfg.Burst = -1, 0
	return &Server{Config: cfg, env: env}, nil
}

// User returns how to reach the API server as a user without any rights.
func (s *Server) User(name string) (*rest.Config, error) {
	s.users.Lock()
	defer s.users.Unlock()
	user, err := s.env.AddUser(envtest.User{Name: name}, s.Config)
	if err != nil {
		return nil, err
	}
	return user.Config(), nil
}

// Stop ends the API server and etcd.
func (s *Server) Stop() error { return s.env.Stop() }
