// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"context"
	"slices"
	"sync"
	"time"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/common"
)

// rules are the rules in CEL of a kind. Compiled, they take some MiB, and all but those of the status are needed only where an object is
// created or its spec changes. So they are compiled then, and dropped when none was needed for keepRules.
type rules struct {
	structural *structuralschema.Structural
	// status are those of the status, which changes all the time; nil if there are none.
	status       *cel.Validator
	statusSchema *structuralschema.Structural

	mu       sync.Mutex
	compiled bool
	whole    *cel.Validator // nil also where the kind has no rule
	drop     *time.Timer
}

const keepRules = 30 * time.Second

func newRules(structural *structuralschema.Structural) *rules {
	r := &rules{structural: structural}
	if status, ok := structural.Properties["status"]; ok {
		r.statusSchema, r.status = &status, cel.NewValidator(&status, false, celconfig.PerCallLimit)
	}
	return r
}

// get returns all rules of the kind, nil where it has none.
func (r *rules) get() *cel.Validator {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.compiled {
		r.whole, r.compiled = cel.NewValidator(r.structural, true, celconfig.PerCallLimit), true
		r.drop = time.AfterFunc(keepRules, r.forget)
	}
	r.drop.Reset(keepRules)
	return r.whole
}

func (r *rules) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.whole, r.compiled = nil, false
}

// created checks an object that there was not before.
func (r *rules) created(ctx context.Context, found field.ErrorList, u *unstructured.Unstructured) field.ErrorList {
	return check(ctx, found, r.get(), nil, r.structural, u.Object, nil)
}

// updated checks an object that replaces another one, whose status it has. Rules see the name of an object, its spec and its status: where these
// are as before, they hold as before.
func (r *rules) updated(ctx context.Context, found field.ErrorList, u, before *unstructured.Unstructured, both *common.CorrelatedObject) field.ErrorList {
	if len(found) == 0 && apiequality.Semantic.DeepEqual(withoutMetadata(u.Object), withoutMetadata(before.Object)) {
		return nil
	}
	return check(ctx, found, r.get(), nil, r.structural, u.Object, before.Object, cel.WithRatcheting(both))
}

// statusUpdated checks an object that differs from before in its status alone.
func (r *rules) statusUpdated(ctx context.Context, found field.ErrorList, u, before *unstructured.Unstructured, both *common.CorrelatedObject) field.ErrorList {
	if len(found) > 0 { // the answer names what all rules find, too
		return check(ctx, found, r.get(), nil, r.structural, u.Object, before.Object, cel.WithRatcheting(both))
	}
	status, ok := u.Object["status"]
	if !ok {
		return nil
	}
	return check(ctx, found, r.status, field.NewPath("status"), r.statusSchema, status, before.Object["status"], cel.WithRatcheting(both.Key("status")))
}

// check checks rules, unless an error was found that they may trip over.
func check(ctx context.Context, found field.ErrorList, rules *cel.Validator, path *field.Path, schema *structuralschema.Structural, now, before any,
	options ...cel.Option) field.ErrorList {
	if rules == nil {
		return nil
	}
	blocking := []field.ErrorType{field.ErrorTypeNotSupported, field.ErrorTypeRequired, field.ErrorTypeTooLong, field.ErrorTypeTooMany, field.ErrorTypeTypeInvalid}
	if slices.ContainsFunc(found, func(err *field.Error) bool { return slices.Contains(blocking, err.Type) }) {
		return field.ErrorList{field.Invalid(nil, nil,
			"some validation rules were not checked because the object was invalid; correct the existing errors to complete validation")}
	}
	broken, _ := rules.Validate(ctx, path, schema, now, before, celconfig.RuntimeCELCostBudget, options...)
	return broken
}
