// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/substorm/substorm/bench/internal/lab"
	"github.com/substorm/substorm/bench/internal/standalone"
	"github.com/substorm/substorm/internal/testenv"
)

// site is a Site in one process that has the tree.
type site struct {
	*testenv.Standalone
	program, port string
}

// startSite starts a Site and imports the tree.
func startSite(l *lab.Lab, t *tree) (*site, error) {
	file := filepath.Join(l.TempDir(), "site.yaml")
	if err := os.WriteFile(file, []byte(manifests()), 0o600); err != nil {
		return nil, err
	}
	s := &site{Standalone: testenv.StandaloneAt(l, "0.0.0.0", filepath.Join(l.TempDir(), "data"), file)}
	s.program = s.Program()
	_, s.port, _ = net.SplitHostPort(strings.TrimPrefix(s.URL, "http://"))
	s.Start()
	begun := time.Now()
	if err := s.importTree(t); err != nil {
		return nil, err
	}
	l.Logf("the tree is imported after %v", time.Since(begun).Round(time.Second))
	return s, nil
}

func manifests() string {
	var text strings.Builder
	text.WriteString(`apiVersion: substorm.dev/v1alpha1
kind: Site
metadata: {name: hub}
spec:
  code: hub
  objectStore: {endpoint: "https://embedded.invalid", bucket: archive, credentialsSecretRef: {name: s3}}
  jetStream: {servers: ["nats://embedded.invalid:4222"], accountKeySecretRef: {name: nats}, observations: {maxSize: 1Gi}, notices: {maxSize: 4Gi}}
  archivist: {partInterval: 5s}
---
apiVersion: substorm.dev/v1alpha1
kind: FeedServer
metadata: {name: hub}
spec: {siteRef: {name: hub}, replicas: 1}
`)
	for i := range instruments {
		fmt.Fprintf(&text, `---
apiVersion: substorm.dev/v1alpha1
kind: Instrument
metadata: {name: %s}
spec: {siteRef: {name: hub}, type: AllSkyCamera, access: {archive: Public}}
`, name(i))
	}
	return text.String()
}

// importTree imports what changed, each instrument by itself, and waits until it is listed.
func (s *site) importTree(t *tree) error {
	for instrument := range t.edited {
		if err := standalone.Import(s.Standalone, filepath.Join(t.dir, instrument), instrument); err != nil {
			return err
		}
	}
	return nil
}

// pull copies the archive.
func (s *site) pull(ctx context.Context, w way, dir string) error {
	return command(ctx, w, s.program, "mirror", "pull", "http://"+net.JoinHostPort(w.host(), s.port), dir, "-q")
}

// command runs a program where the way begins.
func command(ctx context.Context, w way, program string, arguments ...string) error {
	cmd := exec.CommandContext(ctx, program, arguments...)
	if w.link != nil {
		cmd = w.link.Far(ctx, program, arguments...)
	}
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s %s: %w\n%.2000s", program, strings.Join(arguments, " "), err, said.String())
	}
	return nil
}
