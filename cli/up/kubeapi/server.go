// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

const (
	// minWatch is how long a watch lasts at least that does not say.
	minWatch = 30 * time.Minute
	// stopWithin is how long requests have that run when the server is stopped.
	stopWithin = 2 * time.Second
)

// Config says what to serve. Dir, CRDs and Log are needed.
type Config struct {
	// Dir keeps the objects and how clients get in. One process at a time may use it.
	Dir string
	// Listen is an address on loopback, by default 127.0.0.1:0: the port of the last start
	// where that is free, else another one.
	Listen string
	// CRDs has CustomResourceDefinitions of one version each, as *.yaml.
	CRDs fs.FS
	Log  *slog.Logger
}

// Server is a Kubernetes API over a folder.
type Server struct {
	cfg        Config
	access     *access
	store      *store
	spaces     *namespaces
	kinds      []*kind
	byResource map[schema.GroupVersionResource]*kind
	documents  map[string]*document
	collector  *collector
	listener   net.Listener
	failed     chan error // the store cannot keep anything any more
}

// Open reads the folder and listens; Serve answers. Errors name the file. A folder that a
// newer version wrote is refused.
func Open(cfg Config) (*Server, error) {
	if cfg.Listen == "" {
		cfg.Listen = "127.0.0.1:0"
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, spaces: &namespaces{}, byResource: map[schema.GroupVersionResource]*kind{},
		documents: map[string]*document{}, failed: make(chan error, 1)}
	if err := errors.Join(s.addBuiltins(), s.addCustoms(cfg.CRDs)); err != nil {
		return nil, err
	}
	if err := s.openStore(); err != nil {
		return nil, err
	}
	if err := s.open(); err != nil {
		return nil, errors.Join(err, s.store.close())
	}
	return s, nil
}

func (s *Server) openStore() error {
	var tables []*table
	served := map[schema.GroupKind]bool{}
	s.collector = &collector{served: served, spaces: s.spaces}
	for _, k := range s.kinds {
		s.byResource[k.gvk.GroupVersion().WithResource(k.plural)] = k
		s.documents[groupPath(k.gvk.GroupVersion())] = &document{}
		served[k.gvk.GroupKind()] = true
		if k.gvk == (schema.GroupVersionKind{Group: "events.k8s.io", Version: "v1", Kind: "Event"}) {
			continue // another view of the same objects
		}
		if k.gvk == (schema.GroupVersionKind{Version: "v1", Kind: "Event"}) {
			s.collector.events = k.main.table
		}
		tables = append(tables, k.main.table)
		s.collector.resources = append(s.collector.resources, k.main)
	}
	var err error
	if s.store, err = openStore(s.cfg.Dir, tables, s.cfg.Log); err != nil {
		return err
	}
	s.store.changes.onFail = func(err error) { s.failed <- err }
	s.spaces.store, s.collector.store = s.store, s.store
	for _, k := range s.kinds {
		k.main.store = s.store
		if k.status != nil {
			k.status.of.store, k.status.of.table = s.store, k.main.table
		}
	}
	return nil
}

func (s *Server) open() error {
	for _, name := range []string{"default", "kube-system"} {
		if err := s.spaces.make(context.Background(), name); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	host, _, err := net.SplitHostPort(s.cfg.Listen)
	if err != nil {
		return fmt.Errorf("listen on %q: %w", s.cfg.Listen, err)
	}
	if s.access, err = openAccess(s.cfg.Dir, host); err != nil {
		return err
	}
	if s.listener, err = listen(s.cfg.Dir, s.cfg.Listen); err != nil {
		return err
	}
	if err := s.access.writeKubeconfig(s.Address()); err != nil {
		return errors.Join(err, s.listener.Close())
	}
	return nil
}

// Lost says, a line for each object, what of the folder could not be read when the server was opened, and what to do.
func (s *Server) Lost() []string { return s.store.lost }

// Address is the host and port that the server listens on.
func (s *Server) Address() string { return s.listener.Addr().String() }

// Kubeconfig is the path of a file that lets kubectl in.
func (s *Server) Kubeconfig() string { return filepath.Join(s.cfg.Dir, kubeconfigName) }

// RESTConfig lets clients in this process in, without a limit on requests.
func (s *Server) RESTConfig() *rest.Config { return s.access.restConfig(s.Address()) }

// Serve answers until ctx ends, then closes the folder. It errs where the folder can no
// longer keep what is written: nothing is accepted from then on.
func (s *Server) Serve(ctx context.Context) error {
	requests, endRequests := context.WithCancel(context.Background())
	defer endRequests()
	server := &http.Server{Handler: s, ReadHeaderTimeout: 30 * time.Second,
		TLSConfig:   &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{s.access.pair}, NextProtos: []string{"h2", "http/1.1"}},
		BaseContext: func(net.Listener) context.Context { return requests },
		ErrorLog:    slog.NewLogLogger(s.cfg.Log.Handler(), slog.LevelDebug)}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		if err := server.ServeTLS(s.listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	group.Go(func() error {
		s.collector.run(ctx)
		return nil
	})
	group.Go(func() error {
		select {
		case <-ctx.Done():
			return nil
		case err := <-s.failed:
			return err
		}
	})
	group.Go(func() error {
		<-ctx.Done()
		endRequests() // watches
		stop, cancel := context.WithTimeout(context.Background(), stopWithin)
		defer cancel()
		if err := server.Shutdown(stop); err != nil {
			return server.Close()
		}
		return nil
	})
	return errors.Join(group.Wait(), s.store.close())
}

// Close closes a server that does not serve.
func (s *Server) Close() error { return errors.Join(s.listener.Close(), s.store.close()) }
