// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	yaml4 "go.yaml.in/yaml/v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/substorm/substorm/cli/kube"
)

// typedField is the field in an error of server-side apply: `… Kind=Instrument): .spec.cadence.interval: expected …`.
var typedField = regexp.MustCompile(`\): ((?:\.[a-zA-Z][a-zA-Z0-9]*(?:\[[^\]]*\])?)+): `)

// refused says what the API server finds wrong with an object: a line for each field, with the line of the file in which the field is.
func (o *Object) refused(err error) error {
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Reason == metav1.StatusReasonInvalid && status.Status().Details != nil {
		if errs := o.causes(status.Status().Details.Causes); len(errs) > 0 {
			return errors.Join(errs...)
		}
	}
	line := o.Line
	if m := typedField.FindStringSubmatch(err.Error()); m != nil {
		line = o.lineOf(m[1])
	}
	return fmt.Errorf("%s:%d: %w", o.File, line, plain{err}) // the server's message names the object
}

// causes are the mistakes of single fields, in the order of the file. A rule that was not checked because of others is none.
func (o *Object) causes(all []metav1.StatusCause) (errs []error) {
	all = slices.SortedStableFunc(slices.Values(all), func(a, b metav1.StatusCause) int {
		return cmp.Or(o.lineOf(a.Field)-o.lineOf(b.Field), cmp.Compare(a.Field, b.Field))
	})
	for _, c := range all {
		if c.Field == "<nil>" {
			continue
		}
		errs = append(errs, fmt.Errorf("%s:%d: %s %q: %s: %s", o.File, o.lineOf(c.Field), o.GetKind(), o.GetName(), c.Field,
			kube.Hint(o.GetKind(), c.Field, kube.Plain(c.Message))))
	}
	return errs
}

// step is a part of the path of a field: a name, an index, or the key of a list's element.
var step = regexp.MustCompile(`[a-zA-Z][a-zA-Z0-9]*|\[[^\]]*\]`)

// lineOf returns the line of a field, as spec.channels[0].name or .spec.listeners[name="frames"].port; if the document does not have it,
// the line of the nearest field above it.
func (o *Object) lineOf(path string) int {
	if o.node == nil {
		return o.Line
	}
	at, line := o.node, 0
	for _, s := range step.FindAllString(path, -1) {
		key, next := find(at, s)
		if next == nil {
			break
		}
		at, line = next, key.Line
	}
	if line == 0 {
		return o.Line
	}
	return o.Line + line - o.node.Line
}

// find returns the value of a step, and the node where it is declared; nil where it is not.
func find(at *yaml4.Node, s string) (key, value *yaml4.Node) {
	if at.Kind == yaml4.AliasNode {
		at = at.Alias
	}
	inner, element := strings.CutPrefix(s, "[")
	switch inner = strings.TrimSuffix(inner, "]"); {
	case !element && at.Kind == yaml4.MappingNode:
		for i := 0; i+1 < len(at.Content); i += 2 {
			if at.Content[i].Value == s {
				return at.Content[i], at.Content[i+1]
			}
		}
	case element && at.Kind == yaml4.SequenceNode:
		if n, err := strconv.Atoi(inner); err == nil && n >= 0 && n < len(at.Content) {
			return at.Content[n], at.Content[n]
		}
		name, want, _ := strings.Cut(inner, "=")
		for _, one := range at.Content {
			if _, node := find(one, name); node != nil && node.Value == strings.Trim(want, `"`) {
				return one, one
			}
		}
	}
	return nil, nil
}
