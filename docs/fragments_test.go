// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/yuin/goldmark/ast"
	"sigs.k8s.io/yaml"

	"github.com/substorm/substorm/operator/api/v1alpha1"
)

// fragment is a part of a manifest: what stands below spec, or that with some of what stands beside it.
type fragment[S any] struct {
	Kind string `json:"kind,omitempty"`
	Spec S      `json:"spec"`
}

// of says whether a text is a fragment of a kind, with or without the word spec.
func of[S any](kind string) func(text string) error {
	return func(text string) error {
		var whole fragment[S]
		err := yaml.UnmarshalStrict([]byte(text), &whole)
		if err == nil && (whole.Kind == "" || whole.Kind == kind) {
			return nil
		}
		var spec S
		if yaml.UnmarshalStrict([]byte(text), &spec) == nil {
			return nil
		}
		return fmt.Errorf("%s: %w", kind, cmp.Or(err, errors.New("it is of kind "+whole.Kind)))
	}
}

// TestFragments: parts of manifests in docs have no field that no kind has. Whole ones an API server tries, in operator/api.
func TestFragments(t *testing.T) {
	kinds := []func(string) error{
		of[v1alpha1.SiteSpec]("Site"), of[v1alpha1.IngestGatewaySpec]("IngestGateway"), of[v1alpha1.FeedServerSpec]("FeedServer"), of[v1alpha1.InstrumentSpec]("Instrument"),
		of[v1alpha1.FeedSpec]("Feed"), of[v1alpha1.FeedConsumerSpec]("FeedConsumer"), of[v1alpha1.MirrorPartnerSpec]("MirrorPartner"),
	}
	found := 0
	for _, path := range pages(t) {
		if !strings.HasPrefix(path, "../docs/") {
			continue
		}
		page, source := parse(t, path)
		each(t, page, func(n ast.Node) {
			block, ok := n.(*ast.FencedCodeBlock)
			text := ""
			if ok {
				text = string(block.Lines().Value(source))
			}
			if !ok || string(block.Language(source)) != "yaml" || strings.HasPrefix(text, "apiVersion:") {
				return
			}
			found++
			var problems []error
			for _, decode := range kinds {
				err := decode(text)
				if err == nil {
					return
				}
				problems = append(problems, err)
			}
			t.Errorf("%s, block %q is a part of no kind:\n%v", path, firstLine(block, source), errors.Join(problems...))
		})
	}
	if found == 0 {
		t.Error("no parts of manifests are found")
	}
}
