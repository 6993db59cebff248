// SPDX-License-Identifier: Apache-2.0

package storm

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/substorm/substorm/cli/up/manifests"
	"github.com/substorm/substorm/internal/usage"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan"
	"github.com/substorm/substorm/operator/surge"
	"github.com/substorm/substorm/operator/surge/simulate"
)

// command reads manifests for the one Site whose levels are played.
var command = &manifests.Command{
	Name: "substorm storm replay", Flag: "--manifests", Verb: "read",
	Takes:    fmt.Sprintf("it reads the Site of %s, and passes over other kinds", v1alpha1.GroupVersion),
	PassOver: true,
}

// levelsOf are the levels that a Site in some files declares: the one that is named, or the only one where the name is empty.
func levelsOf(ctx context.Context, files []string, name string) ([]surge.Level, error) {
	o, err := siteOf(files, name)
	if err != nil {
		return nil, err
	}
	if err := validSurge(ctx, o.Object); err != nil {
		return nil, fmt.Errorf("--manifests: an API server would refuse %s: %w", o, err)
	}
	site := &v1alpha1.Site{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, site); err != nil {
		return nil, fmt.Errorf("--manifests: %s: %w", o, err)
	}
	levels := plan.SurgeLevels(site)
	if len(levels) == 0 {
		return nil, fmt.Errorf("--manifests: %s declares no levels: set spec.surge.levels (docs/how-to/storms.md)", o)
	}
	if !slices.ContainsFunc(levels, func(l surge.Level) bool { return l.Floor(surge.Pool{Kind: surge.KindFeedServer}) > 0 }) {
		return nil, fmt.Errorf("--manifests: no level of %s has a floor of all FeedServers, which the replay needs: add {kind: FeedServer, replicas: 6} to spec.surge.levels[].floors", o)
	}
	return levels, nil
}

// siteOf is the Site whose levels are played.
func siteOf(files []string, name string) (*manifests.Object, error) {
	if slices.Contains(files, "") || len(files) == 0 {
		return nil, usage.Errorf("--manifests names no file: give a file or a folder, or leave the flag out to play the default levels")
	}
	sites, err := sitesOf(files)
	if err != nil {
		return nil, fmt.Errorf("--manifests: %w", err)
	}
	if len(sites) == 0 {
		return nil, fmt.Errorf("--manifests: no Site is declared in %s", strings.Join(files, ", "))
	}
	var declared []string
	var found []*manifests.Object
	for _, o := range sites {
		declared = append(declared, o.String())
		if name == "" || o.GetName() == name {
			found = append(found, o)
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) == 0:
		return nil, usage.Errorf("--site %s: no such Site is declared, but %s", name, strings.Join(declared, ", "))
	case name == "":
		return nil, usage.Errorf("--manifests: more than one Site is declared: choose one of them with --site: %s", strings.Join(declared, ", "))
	default:
		return nil, usage.Errorf("--site %s: more than one namespace has such a Site: name the file of one of them with --manifests: %s", name, strings.Join(declared, ", "))
	}
}

// sitesOf are the Sites in some files.
func sitesOf(files []string) (sites []*manifests.Object, err error) {
	objects, err := command.Load(files, "default")
	for _, o := range objects {
		if o.GetKind() == "Site" {
			sites = append(sites, o)
		}
	}
	return sites, err
}

// completeSite completes --site with the Sites that --manifests declares.
func (o *replayOptions) completeSite(*cobra.Command, []string, string) (names []cobra.Completion, _ cobra.ShellCompDirective) {
	sites, _ := sitesOf(o.manifests) // a shell shows no errors
	for _, site := range sites {
		names = append(names, site.GetName())
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// playable are levels without the rules that ask for what the file does not have, and says which these are. The operator never knows whether
// such a rule is fulfilled: a level that has one would not end.
func playable(levels []surge.Level, recorded simulate.Recording, file string) (played []surge.Level, notes []string) {
	for _, l := range levels {
		var rules []surge.Rule
		var lacks []string
		for _, rule := range l.AnyOf {
			missing := false
			for _, t := range rule {
				if len(recorded[t.Quantity]) > 0 {
					continue
				}
				missing = true
				if q := string(t.Quantity); !slices.Contains(lacks, q) {
					lacks = append(lacks, q)
				}
			}
			if !missing {
				rules = append(rules, rule)
			}
		}
		if len(lacks) > 0 {
			note := fmt.Sprintf("Level %s: rules that ask for %s are not played, because %s has no such column.", l.Name, strings.Join(lacks, " or "), file)
			if len(rules) == 0 {
				note += " It has no other rule, and so it never begins."
			}
			notes = append(notes, note)
		}
		l.AnyOf = rules
		played = append(played, l)
	}
	return played, notes
}
