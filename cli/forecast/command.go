// SPDX-License-Identifier: Apache-2.0

// Package forecast says what a storm would need of a cluster, and whether that fits.
package forecast

import (
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/substorm/substorm/cli/kube"
	"github.com/substorm/substorm/cli/output"
	"github.com/substorm/substorm/internal/usage"
	"github.com/substorm/substorm/operator/surge"
)

// Problems that a report finds.
var (
	// ErrDoesNotFit: a pool would need more pods than it can have.
	ErrDoesNotFit = errors.New("it does not fit")
	// ErrNoSuchPool: a floor names a pool that the Site does not have.
	ErrNoSuchPool = errors.New("a floor without a pool raises nothing")
)

// storm is the one that is asked about: space weather, or a level.
type storm struct {
	told  map[surge.Quantity]float64
	level string
}

// Command returns `substorm plan`.
func Command() *cobra.Command {
	var flags kube.Flags
	var site, level string
	var kp, bz, speed float64
	var format output.Format
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Say what a storm would need of this cluster: pods of each pool, and whether they fit",
		Long: `Says for each IngestGateway and each FeedServer of a Site how many pods it would
need in a storm, how many it can have, and what is missing. It decides with the
operator's code: the levels of the Site (spec.surge) give the floors; the spec,
ResourceQuotas, nodes and volumes give the ceiling. It changes nothing.

Tell the storm by what would be measured, or by the name of a level, which
includes those declared before it. What you do not tell (--bz, --speed) is
unknown, and raises nothing. What you tell counts as lasting for a day, so it
fulfills any "for" of a level.

Pools are counted one after the other, gateways first, each beside what the ones
before it would need.

NEEDS is what the pool asks for now or the floor, whichever is more. CEILING is
what the spec allows or the cluster has space for, whichever is less. Nodes and
volumes are read with your rights; where you may not, quotas and pods that found
no node are all that counts, and the report says so.

It exits with 1 where something does not fit, where a floor of a level names a
pool that the Site does not have, where there is no such Site, and where the API
server could not be asked. In -o json and yaml, fits is false in the first case;
it speaks of the pools that there are. unknownPools names those that there are
not, at any level.`,
		Example: `  kubectl substorm plan --kp 8
  kubectl substorm plan --bz -15 --speed 700 -n aurora --site hub
  substorm plan --level severe -o json | jq '.pools[] | select(.fits | not)'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			told := map[surge.Quantity]float64{}
			for name, of := range map[string]struct {
				quantity surge.Quantity
				value    float64
			}{"kp": {surge.Kp, kp}, "bz": {surge.Bz, bz}, "speed": {surge.Speed, speed}} {
				if cmd.Flags().Changed(name) {
					told[of.quantity] = of.value
				}
			}
			asked, err := check(told, level)
			if err != nil {
				return err
			}
			cluster, err := kube.Open(flags)
			if err != nil {
				return err
			}
			seen, err := readCluster(cmd.Context(), cluster, site)
			if err != nil {
				return err
			}
			report, err := seen.report(asked, time.Now())
			if err != nil {
				return err
			}
			if err := output.One(cmd.OutOrStdout(), format, report, report.print); err != nil {
				return err
			}
			return report.verdict()
		},
	}
	flags.Add(cmd.Flags())
	cmd.Flags().StringVar(&site, "site", "", "the Site (default: the only one of the namespace)")
	cmd.Flags().Float64Var(&kp, "kp", 0, "planetary K index of the storm, 0 to 9")
	cmd.Flags().Float64Var(&bz, "bz", 0, "Bz of the solar wind, in nT: southward is below 0")
	cmd.Flags().Float64Var(&speed, "speed", 0, "speed of the solar wind, in km/s")
	cmd.Flags().StringVar(&level, "level", "", "a level of the Site, in place of space weather")
	format.Add(cmd, "one document")
	return cmd
}

// check says what is wrong with what was asked.
func check(told map[surge.Quantity]float64, level string) (storm, error) {
	kp, speed := told[surge.Kp], told[surge.Speed]
	switch {
	case len(told) == 0 && level == "":
		return storm{}, usage.Errorf("describe the storm: --kp, --bz and --speed, or --level")
	case len(told) > 0 && level != "":
		return storm{}, usage.Errorf("--level takes the place of --kp, --bz and --speed: give one or the other")
	case !(kp >= 0 && kp <= 9):
		return storm{}, usage.Errorf("--kp is 0 to 9")
	case !(speed >= 0 && speed <= 10_000):
		return storm{}, usage.Errorf("--speed is 0 to 10000 km/s")
	case !(told[surge.Bz] >= -1000 && told[surge.Bz] <= 1000):
		return storm{}, usage.Errorf("--bz is -1000 to 1000 nT")
	}
	return storm{told, level}, nil
}
