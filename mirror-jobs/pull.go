// SPDX-License-Identifier: Apache-2.0

package mirrorjobs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/folder"
	"github.com/substorm/substorm/mirror-jobs/https"
	"github.com/substorm/substorm/mirror-jobs/plan"
	"github.com/substorm/substorm/mirror-jobs/push"
	"github.com/substorm/substorm/mirror-jobs/site"
)

// pull brings into the Site what another one has.
func (p *program) pull(ctx context.Context, entry wire.MirrorEntry, progress *push.Progress) error {
	if entry.HTTPS == nil || entry.HTTPS.Source != wire.MirrorSourceSubstorm {
		return &push.Problem{Reason: wire.MirrorReasonProtocol, Err: errors.New("this version pulls from another Substorm alone (spec.https.source: Substorm), and neither from a web archive nor by rsync")}
	}
	source, err := p.source(ctx, entry)
	if err != nil {
		return &push.Problem{Reason: wire.MirrorReasonUnreachable, Err: err}
	}
	defer source.Close()
	scratch, err := folder.Open(filepath.Join(p.cfg.ScratchDir, "pull-"+p.kind()))
	if err != nil {
		return err
	}
	defer scratch.Close()
	return site.Run(ctx, site.Config{
		Site: p.cfg.Site, Entry: entry, Kind: p.kind(), Source: source, Catalog: p.catalog, Registry: p.registry.Snapshot, JetStream: p.js, Scratch: scratch,
		Pause: func(ctx context.Context) error { return p.pause(ctx, entry.Limits) },
		From:  p.cfg.From, To: p.cfg.To, VerifyOnly: p.cfg.VerifyOnly, Force: p.cfg.Force, Progress: progress, Logger: p.log,
	})
}

// source is the other side of a pull.
func (p *program) source(ctx context.Context, entry wire.MirrorEntry) (*https.Client, error) {
	h := entry.HTTPS
	u, err := url.Parse(h.URL)
	if err != nil {
		return nil, fmt.Errorf("spec.https.url: %w", err)
	}
	cfg := https.Config{URL: u, Connections: max(1, entry.Limits.Connections), Agent: "substorm-mirror", Received: paced(ctx, entry.Limits)}
	if h.Token {
		text, err := os.ReadFile(filepath.Join(p.cfg.CredentialsDir, wire.MirrorFileToken))
		if err != nil {
			return nil, fmt.Errorf("the token of spec.https.tokenSecretKeyRef: %w", err)
		}
		cfg.Token = strings.TrimSpace(string(text))
	}
	if cfg.TLS, err = p.tls(h.TLS); err != nil {
		return nil, err
	}
	return https.New(cfg), nil
}

// tls has the files of spec.https.tls.
func (p *program) tls(is *wire.MirrorTLS) (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if is == nil {
		return cfg, nil
	}
	if is.CA {
		text, err := os.ReadFile(filepath.Join(p.cfg.CredentialsDir, wire.MirrorFileCA))
		if err != nil {
			return nil, err
		}
		if cfg.RootCAs = x509.NewCertPool(); !cfg.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s of spec.https.tls has no certificate in PEM", wire.MirrorFileCA)
		}
	}
	if is.Certificate {
		pair, err := tls.LoadX509KeyPair(filepath.Join(p.cfg.CredentialsDir, wire.MirrorFileCertificate), filepath.Join(p.cfg.CredentialsDir, wire.MirrorFilePrivateKey))
		if err != nil {
			return nil, fmt.Errorf("the certificate of spec.https.tls: %w", err)
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	return cfg, nil
}

// paced has whoever reads wait as long as the limits say.
func paced(ctx context.Context, limits wire.MirrorLimits) func(bytes int) {
	limiter := rate.NewLimiter(rate.Inf, pacedBurst)
	return func(bytes int) {
		limit := rate.Inf
		if most := plan.Rate(limits, time.Now()); most > 0 {
			limit = rate.Limit(most)
		}
		if limiter.Limit() != limit {
			limiter.SetLimit(limit)
		}
		for ; bytes > 0; bytes -= pacedBurst {
			_ = limiter.WaitN(ctx, min(bytes, pacedBurst)) // ctx ends the read, too
		}
	}
}

// pacedBurst is what is read at once at most, in bytes.
const pacedBurst = 64 << 10
