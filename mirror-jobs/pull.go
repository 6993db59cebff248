// SPDX-License-Identifier: Apache-2.0

package mirrorjobs

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/folder"
	"github.com/substorm/substorm/mirror-jobs/https"
	"github.com/substorm/substorm/mirror-jobs/plan"
	"github.com/substorm/substorm/mirror-jobs/push"
	"github.com/substorm/substorm/mirror-jobs/rsync"
	"github.com/substorm/substorm/mirror-jobs/site"
	"github.com/substorm/substorm/mirror-jobs/tree"
	"github.com/substorm/substorm/mirror-jobs/web"
)

// pull brings into the Site what the other side has.
func (p *program) pull(ctx context.Context, entry wire.MirrorEntry, progress *push.Progress) error {
	switch {
	case entry.Rsync != nil:
		return p.pullRsync(ctx, entry, progress)
	case entry.HTTPS != nil && entry.HTTPS.Source == wire.MirrorSourceSubstorm:
		return p.pullSite(ctx, entry, progress)
	case entry.HTTPS != nil:
		return p.pullWeb(ctx, entry, progress)
	default:
		return &push.Problem{Reason: wire.MirrorReasonProtocol, Err: errors.New("a bucket can only be pushed to")}
	}
}

// pullSite pulls from another Substorm.
func (p *program) pullSite(ctx context.Context, entry wire.MirrorEntry, progress *push.Progress) error {
	if p.catalog == nil {
		return errNoStore
	}
	source, err := p.source(ctx, entry, entry.HTTPS.URL)
	if err != nil {
		return &push.Problem{Reason: wire.MirrorReasonAccessDenied, Err: err}
	}
	defer source.Close()
	scratch, err := folder.Open(p.scratch())
	if err != nil {
		return err
	}
	defer scratch.Close()
	return site.Run(ctx, site.Config{
		Site: p.cfg.Site, Entry: entry, Kind: p.kind(), Source: source, Catalog: p.catalog, Store: p.store, Registry: p.registry.Snapshot, JetStream: p.js,
		Scratch: scratch, ScratchSize: p.cfg.ScratchSize,
		Pause: func(ctx context.Context) error { return p.pause(ctx, entry.Limits) },
		From:  p.cfg.From, To: p.cfg.To, VerifyOnly: p.cfg.VerifyOnly, Force: p.cfg.Force, Progress: progress, Logger: p.log,
	})
}

// pullWeb pulls from a web archive.
func (p *program) pullWeb(ctx context.Context, entry wire.MirrorEntry, progress *push.Progress) error {
	at, err := url.Parse(entry.HTTPS.URL)
	if err != nil {
		return fmt.Errorf("spec.https.url: %w", err)
	}
	source, err := p.source(ctx, entry, entry.HTTPS.URL)
	if err != nil {
		return &push.Problem{Reason: wire.MirrorReasonAccessDenied, Err: err}
	}
	defer source.Close()
	root, err := p.source(ctx, entry, (&url.URL{Scheme: at.Scheme, Host: at.Host}).String())
	if err != nil {
		return err
	}
	defer root.Close()
	from, err := web.New(web.Config{Client: source, Root: root, URL: at, Connections: entry.Limits.Connections, Scratch: p.scratch(), Logger: p.log})
	if err != nil {
		return err
	}
	return p.pullTree(ctx, entry, progress, from)
}

// pullRsync pulls by rsync.
func (p *program) pullRsync(ctx context.Context, entry wire.MirrorEntry, progress *push.Progress) error {
	mover, err := rsync.New(rsync.Config{MirrorRsync: *entry.Rsync, Credentials: p.cfg.CredentialsDir, Scratch: p.scratch(),
		BytesPerSecond: func() int64 { return plan.Rate(entry.Limits, time.Now()) }})
	if err != nil {
		return err
	}
	return p.pullTree(ctx, entry, progress, rsync.Source{Mover: mover})
}

func (p *program) pullTree(ctx context.Context, entry wire.MirrorEntry, progress *push.Progress, from tree.Source) error {
	return tree.Run(ctx, tree.Config{
		Site: p.cfg.Site, Entry: entry, Kind: p.kind(), Source: from, JetStream: p.js,
		MaxObjectSize: func(instrument string) int64 {
			return cmp.Or(p.registry.Snapshot().Instruments[instrument].MaxObjectSize, undeclaredSize)
		},
		HasListeners: func(instrument string) bool {
			return len(p.registry.Snapshot().Instruments[instrument].Listeners) > 0
		},
		Pause:      func(ctx context.Context) error { return p.pause(ctx, entry.Limits) },
		VerifyOnly: p.cfg.VerifyOnly, Force: p.cfg.Force, Progress: progress, Logger: p.log,
	})
}

// undeclaredSize is how many bytes are fetched at most for an Instrument that is not declared: a gateway refuses what comes for it.
const undeclaredSize = 1 << 20

// scratch is where what is pulled is on its way.
func (p *program) scratch() string { return filepath.Join(p.cfg.ScratchDir, "pull-"+p.kind()) }

// source is the other side of a pull.
func (p *program) source(ctx context.Context, entry wire.MirrorEntry, at string) (*https.Client, error) {
	h := entry.HTTPS
	u, err := url.Parse(strings.TrimRight(at, "/"))
	if err != nil {
		return nil, fmt.Errorf("spec.https.url: %w", err)
	}
	cfg := https.Config{URL: u, Connections: max(1, entry.Limits.Connections), Agent: web.Agent, Received: paced(ctx, entry.Limits),
		BytesPerSecond: func() int64 { return plan.Rate(entry.Limits, time.Now()) }}
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
	c := https.New(cfg)
	p.report.measures(c.Path)
	return c, nil
}

// tls has the files of spec.https.tls.
func (p *program) tls(settings *wire.MirrorTLS) (*tls.Config, error) {
	var ca, certificate, key string
	if settings != nil && settings.CA {
		ca = filepath.Join(p.cfg.CredentialsDir, wire.MirrorFileCA)
	}
	if settings != nil && settings.Certificate {
		certificate, key = filepath.Join(p.cfg.CredentialsDir, wire.MirrorFileCertificate), filepath.Join(p.cfg.CredentialsDir, wire.MirrorFilePrivateKey)
	}
	cfg, err := https.TLS(ca, certificate, key)
	if err != nil {
		return nil, fmt.Errorf("the Secrets of spec.https.tls: %w", err)
	}
	return cfg, nil
}

// paced returns a function that makes its caller, which moves bytes, wait as long as the limits say. It may be called from several
// goroutines.
func paced(ctx context.Context, limits wire.MirrorLimits) func(bytes int) {
	limiter := rate.NewLimiter(rate.Inf, pacedBurst)
	var mu sync.Mutex
	var looked time.Time // at the timetable
	return func(bytes int) {
		mu.Lock()
		if now := time.Now(); now.Sub(looked) >= time.Second {
			limit := rate.Inf
			if most := plan.Rate(limits, now); most > 0 {
				limit = rate.Limit(most)
			}
			if looked = now; limiter.Limit() != limit {
				limiter.SetLimit(limit)
			}
		}
		mu.Unlock()
		for ; bytes > 0; bytes -= pacedBurst {
			_ = limiter.WaitN(ctx, min(bytes, pacedBurst)) // ctx ends the read, too
		}
	}
}

// pacedBurst is what is read at once at most, in bytes.
const pacedBurst = 64 << 10
