// SPDX-License-Identifier: Apache-2.0

package storm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/substorm/substorm/cli/up/manifests"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan"
	"github.com/substorm/substorm/operator/surge"
)

// command reads manifests for the one Site whose levels are played.
var command = &manifests.Command{
	Name: "substorm storm replay", Flag: "--manifests", Verb: "read",
	Takes: fmt.Sprintf("it reads the Site, and passes over other kinds of %s, Secrets and Namespaces", v1alpha1.GroupVersion),
	One:   "plays the levels of one Site", Second: "leave one of them in what --manifests names",
}

// levelsOf are the levels that the Site in some files declares.
func levelsOf(ctx context.Context, files []string) ([]surge.Level, error) {
	objects, err := command.Load(files, "default")
	if err != nil {
		return nil, fmt.Errorf("--manifests: %w", err)
	}
	for _, o := range objects {
		if o.GetKind() != "Site" {
			continue
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
			return nil, fmt.Errorf("--manifests: no level of %s has a floor of all FeedServers, which is what is played: add {kind: FeedServer, replicas: 6} to spec.surge.levels[].floors", o)
		}
		return levels, nil
	}
	return nil, errors.New("--manifests: no Site is declared in " + strings.Join(files, ", "))
}
