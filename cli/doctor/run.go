// SPDX-License-Identifier: Apache-2.0

//go:build linux

package doctor

import (
	"context"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/substorm/substorm/internal/progress"
)

// Config of Run: flags of substorm up, and what is linked to.
type Config struct {
	// Manifests are files and folders; none: the Site that substorm up has built in.
	Manifests []string
	// DataDir is an absolute path.
	DataDir string
	// Listen is where the first FeedServer serves, host:port.
	Listen string
	// ListenMetrics is where metrics are served, host:port; empty: nowhere.
	ListenMetrics string
	// DiskBudget is how large the data folder may become, as a quantity; empty: as large as its disk allows, less a reserve.
	DiskBudget string
	// Hubs are servers to ask for beside the hub that manifests name, host:port.
	Hubs []string
}

// Run looks at everything. It changes nothing, but for files that it writes into the data folder and removes. The error is ctx's.
func Run(ctx context.Context, cfg Config, shown *progress.Progress) (*Report, error) {
	shown.Set(0, 0, "reading the manifests")
	declared, checks := lookAtManifests(ctx, cfg.Manifests)
	place := lookAtFolder(cfg.DataDir)
	newest, file := newestFile(cfg.DataDir)
	checks = append(checks, clock(time.Now(), builtAt(), newest, file, unix.Adjtimex), expiryClock(cfg.DataDir, time.Now()))
	checks = append(checks, place.check)

	disk := place.disk(ctx, shown)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	checks = append(checks, disk.checks()...)
	shown.Set(0, 0, "measuring the data folder")
	checks = append(checks, place.budget(ctx, cfg.DiskBudget))
	checks = append(checks, powerCut(cfg.DataDir, disk, declared))

	shown.Set(0, 0, "looking who holds the ports")
	checks = append(checks, ports(declared.ports(cfg.Listen, cfg.ListenMetrics), place.holder, len(cfg.Manifests) > 0)...)
	checks = append(checks, rights(place))
	checks = append(checks, memory(place.holder != 0))
	for _, hub := range slices.Concat(declared.hubs, cfg.Hubs) {
		shown.Set(0, 0, "asking for %s", hub)
		checks = append(checks, reach(ctx, hub))
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	fine := !slices.ContainsFunc(checks, func(c Check) bool { return c.Result != OK })
	return &Report{Fine: fine, DataDir: cfg.DataDir, Process: place.holder, Checks: checks}, nil
}
