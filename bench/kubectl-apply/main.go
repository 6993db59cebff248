// SPDX-License-Identifier: Apache-2.0

// Command kubectl-apply measures when 1,000 Instruments are Programmed that kubectl applies at once, beside the time that kubectl itself takes.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/substorm/substorm/bench/internal/control"
	"github.com/substorm/substorm/bench/internal/lab"
	"github.com/substorm/substorm/bench/internal/report"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/operator/api/v1alpha1"
)

const (
	instrumentsVariable = "SUBSTORM_BENCH_APPLY_INSTRUMENTS"
	rounds              = 5
	gateways            = 4
	name                = "apply"
	// limit of what is waited for.
	limit = 5 * time.Minute
)

func main() { lab.Run(run) }

// bench is the Site to which manifests are applied.
type bench struct {
	site                    *control.Site
	kubectl, config, folder string
	instruments             int
}

func run(l *lab.Lab) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	instruments, err := lab.Number(instrumentsVariable, 1000, 10)
	if err != nil {
		return err
	}
	backends := control.Start(l)
	site, err := control.NewSite(ctx, l, backends, name, control.Size{Gateways: gateways})
	if err != nil {
		return err
	}
	if _, err := control.StartOperator(l, backends.API, name); err != nil {
		return err
	}
	if err := site.Pools(ctx); err != nil {
		return err
	}
	b := &bench{site: site, instruments: instruments, folder: l.TempDir(),
		kubectl: testenv.Path(l, "kubectl"), config: backends.API.Kubeconfig(l, "person", "system:masters")}
	if err := b.write(); err != nil {
		return err
	}
	r := report.New("kubectl-apply", report.Rounds(rounds))
	for range r.Each() {
		if err := b.round(ctx, r); err != nil {
			return err
		}
	}
	r.Compare("kubectl-apply", []report.Pair{{Case: "all Programmed", Candidate: "substorm", OfCase: "kubectl apply", OfCandidate: "kubectl"}}, "<=", 1.2)
	r.Note("%d manifests in as many files; from the start of kubectl to its end, and to the last status that says Programmed", instruments)
	return r.Finish()
}

// write writes a manifest for each Instrument into a file of its own.
func (b *bench) write() error {
	for i := range b.instruments {
		inst := b.site.Instrument(i)
		inst.APIVersion, inst.Kind = v1alpha1.GroupVersion.String(), "Instrument"
		text, err := yaml.Marshal(inst)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(b.folder, inst.Name+".yaml"), text, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// round applies all manifests to a Site without Instruments, and leaves it without.
func (b *bench) round(ctx context.Context, r *report.Report) error {
	kubectl := exec.CommandContext(ctx, b.kubectl, "--kubeconfig", b.config, "--namespace", name, "apply", "--filename", b.folder)
	kubectl.Stderr = os.Stderr
	begin := time.Now()
	if err := kubectl.Run(); err != nil {
		return fmt.Errorf("kubectl apply: %w", err)
	}
	r.Add("kubectl apply", "kubectl", "s", time.Since(begin).Seconds())
	control.Within(ctx, limit, func() bool { return b.site.Seen.Programmed() == b.instruments })
	r.Add("all Programmed", "substorm", "s", time.Since(begin).Seconds())
	if n := b.site.Seen.Programmed(); n != b.instruments {
		return fmt.Errorf("%d of %d Instruments are Programmed after %v", n, b.instruments, limit)
	}
	if err := b.site.DeleteAllOf(ctx, &v1alpha1.Instrument{}, client.InNamespace(name)); err != nil {
		return err
	}
	control.Within(ctx, limit, func() bool { return b.site.Seen.Entries() == 0 })
	if n := b.site.Seen.Entries(); n > 0 {
		return errors.New("the Instruments of one round are in the registry when the next one begins")
	}
	return nil
}
