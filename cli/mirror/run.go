// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/substorm/substorm/cli/kube"
	"github.com/substorm/substorm/internal/usage"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/workload"
)

// lookEvery is how often the status is read while a run lasts.
const lookEvery = 2 * time.Second

// run has the arguments of `substorm mirror run`.
type run struct {
	partner  string
	observed string
	asked    workload.ManualRun
	patience time.Duration
}

func runCommand() *cobra.Command {
	var flags kube.Flags
	var r run
	cmd := &cobra.Command{
		Use:   "run PARTNER",
		Short: "Begin a run of a MirrorPartner now, beside those of its schedule",
		Long: `Makes a Job that does what a run of the MirrorPartner's schedule does, or a part of it. It is beside those of the schedule
and delays none of them; also a MirrorPartner that is suspended has such runs. Its result stands in the MirrorPartner's status, among the last ten
runs, and is kept with its log for seven days.`,
		Example: `  kubectl substorm mirror run uni
  kubectl substorm mirror run uni --observed 2026-01-01..2026-02-01 --verify-only --wait 1h
  kubectl substorm mirror run uni --force            # after a safety stop, once you know that the copies should go`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			r.partner = args[0]
			if err := r.parse(); err != nil {
				return err
			}
			cluster, err := kube.Open(flags)
			if err != nil {
				return err
			}
			return r.begin(cmd.Context(), cluster, cmd.OutOrStdout())
		},
	}
	flags.Add(cmd.Flags())
	cmd.Flags().StringVar(&r.observed, "observed", "",
		"move only what was observed in this interval `A..B`, of which B is not included: days or times in UTC, as 2026-01-01..2026-02-01 or 2026-01-01T18:00:00Z.. (default: all that is selected)")
	cmd.Flags().BoolVar(&r.asked.VerifyOnly, "verify-only", false, "compare the copies with what they should be, and move nothing")
	cmd.Flags().BoolVar(&r.asked.Force, "force", false, "remove as many copies as are due, whatever spec.safetyStopPercent says, and move again what differs")
	cmd.Flags().DurationVar(&r.patience, "wait", 0, "how long to wait for its end (default: not at all)")
	return cmd
}

// parse reads what --observed says, and refuses what makes no sense.
func (r *run) parse() error {
	if r.observed != "" {
		from, to, both := strings.Cut(r.observed, "..")
		if !both || from == "" && to == "" {
			return usage.Errorf("--observed %q is not A..B, of which one may be left out: 2026-01-01..2026-02-01", r.observed)
		}
		var err error
		if r.asked.From, err = moment(from); err != nil {
			return err
		}
		if r.asked.To, err = moment(to); err != nil {
			return err
		}
	}
	if err := r.asked.Problem(); err != nil {
		return usage.Errorf("%w", err)
	}
	return nil
}

// moment is the beginning of a day, or a time; zero of no text.
func moment(text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	for _, layout := range []string{time.DateOnly, time.RFC3339Nano} {
		if at, err := time.Parse(layout, text); err == nil {
			return at.UTC(), nil
		}
	}
	return time.Time{}, usage.Errorf("%q is neither a day nor a time: write 2026-01-01 or 2026-01-01T18:00:00Z", text)
}

func (r *run) begin(ctx context.Context, cluster *kube.Cluster, out io.Writer) error {
	m := &v1alpha1.MirrorPartner{}
	if err := cluster.Client.Get(ctx, client.ObjectKey{Namespace: cluster.Namespace, Name: r.partner}, m); err != nil {
		return fmt.Errorf("read MirrorPartner %q: %w", r.partner, err)
	}
	template, err := templateOf(ctx, cluster, m)
	if err != nil {
		return err
	}
	job, err := workload.ManualMirrorJob(m, template, r.asked)
	if err != nil {
		return err
	}
	if err := cluster.Client.Create(ctx, job); err != nil {
		return fmt.Errorf("begin a run of MirrorPartner %q: %w", r.partner, err)
	}
	fmt.Fprintf(out, "run %s has begun: %s\n", job.Name, stepsOf(ctx, cluster, job.Name))
	if r.patience <= 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, r.patience)
	defer cancel()
	return r.await(ctx, cluster, job.Name, out)
}

// stepsOf says where the log of a run is, and how to end it. `substorm up` has no log of a Job: the run is part of its own; nor need kubectl be there.
func stepsOf(ctx context.Context, cluster *kube.Cluster, job string) string {
	if !cluster.IsStandalone(ctx) {
		return fmt.Sprintf("kubectl logs -f job/%s shows its log, kubectl delete job %[1]s ends it", job)
	}
	return fmt.Sprintf("its log is in that of substorm up, in the lines with run=%s; substorm delete job %[1]s ends it", job)
}

// templateOf returns the template of the pods in which the operator runs a mirror.
func templateOf(ctx context.Context, cluster *kube.Cluster, m *v1alpha1.MirrorPartner) (*corev1.PodTemplateSpec, error) {
	at := client.ObjectKey{Namespace: m.Namespace, Name: workload.MirrorName(m.Name)}
	cron, deployment := &batchv1.CronJob{}, &appsv1.Deployment{}
	err := cluster.Client.Get(ctx, at, cron)
	if err == nil {
		return &cron.Spec.JobTemplate.Spec.Template, nil
	}
	if !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("read CronJob %q: %w", at.Name, err)
	}
	err = cluster.Client.Get(ctx, at, deployment)
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("the operator has made neither CronJob nor Deployment %q for MirrorPartner %q: see its condition Ready", at.Name, m.Name)
	} else if err != nil {
		return nil, fmt.Errorf("read Deployment %q: %w", at.Name, err)
	}
	return &deployment.Spec.Template, nil
}

// await waits until the status says how a run ended.
func (r *run) await(ctx context.Context, cluster *kube.Cluster, name string, out io.Writer) error {
	var last v1alpha1.MirrorRun
	err := wait.PollUntilContextCancel(ctx, lookEvery, true, func(ctx context.Context) (bool, error) {
		m := &v1alpha1.MirrorPartner{}
		if err := cluster.Client.Get(ctx, client.ObjectKey{Namespace: cluster.Namespace, Name: r.partner}, m); err != nil {
			return false, err
		}
		i := slices.IndexFunc(m.Status.Runs, func(run v1alpha1.MirrorRun) bool { return run.Name == name })
		if i < 0 {
			return false, nil
		}
		last = m.Status.Runs[i]
		return last.Result != v1alpha1.MirrorRunning, nil
	})
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("run %s has not ended within %s, and goes on: see substorm get mirror %s -o wide", name, r.patience, r.partner)
	case err != nil:
		return fmt.Errorf("wait for run %s: %w", name, err)
	case last.Result != v1alpha1.MirrorSucceeded:
		return fmt.Errorf("run %s %s: %s %s", name, strings.ToLower(string(last.Result)), last.Reason, last.Message)
	}
	fmt.Fprintf(out, "run %s succeeded: %d objects of %d bytes moved, %d removed\n", name, last.ObjectCount, last.Bytes, last.RemovedCount)
	return nil
}
