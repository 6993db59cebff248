// SPDX-License-Identifier: Apache-2.0

package storm

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"

	"github.com/substorm/substorm/crds"
)

// validSurge says what an API server would refuse of a Site's spec.surge: a level with a misspelled field would never begin here, and the rest
// would be played. The object gets its defaults.
func validSurge(ctx context.Context, site map[string]any) error {
	surge, found, err := unstructured.NestedMap(site, "spec", "surge")
	if err != nil || !found {
		return err
	}
	props, structural, err := surgeSchema()
	if err != nil {
		return err
	}
	path := field.NewPath("spec", "surge")
	unknown := pruning.PruneWithOptions(surge, structural, false, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true, ParentPath: []string{"spec.surge"}})
	if len(unknown) > 0 {
		return fmt.Errorf("unknown fields: %s", strings.Join(unknown, ", "))
	}
	defaulting.Default(surge, structural)
	validator, _, err := validation.NewSchemaValidator(props)
	if err != nil {
		return err
	}
	errs := validation.ValidateCustomResource(path, surge, validator)
	errs = append(errs, listtype.ValidateListSetsAndMaps(path, structural, surge)...)
	if len(errs) == 0 { // rules rely on the rest
		errs, _ = cel.NewValidator(structural, false, celconfig.PerCallLimit).Validate(ctx, path, structural, surge, nil, celconfig.RuntimeCELCostBudget)
	}
	if len(errs) > 0 {
		return errs.ToAggregate()
	}
	return unstructured.SetNestedMap(site, surge, "spec", "surge")
}

// surgeSchema returns the schema of spec.surge of Sites.
func surgeSchema() (*apiextensions.JSONSchemaProps, *structuralschema.Structural, error) {
	data, err := crds.Files.ReadFile("substorm.dev_sites.yaml")
	if err != nil {
		return nil, nil, err
	}
	crd, schema := &apiextensionsv1.CustomResourceDefinition{}, &apiextensions.CustomResourceValidation{}
	if err := yaml.UnmarshalStrict(data, crd); err != nil {
		return nil, nil, err
	}
	if err := apiextensionsv1.Convert_v1_CustomResourceValidation_To_apiextensions_CustomResourceValidation(crd.Spec.Versions[0].Schema, schema, nil); err != nil {
		return nil, nil, err
	}
	structural, err := structuralschema.NewStructural(schema.OpenAPIV3Schema)
	if err != nil {
		return nil, nil, err
	}
	props := schema.OpenAPIV3Schema.Properties["spec"].Properties["surge"]
	of := structural.Properties["spec"].Properties["surge"]
	return &props, &of, nil
}
