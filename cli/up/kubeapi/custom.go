// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"fmt"
	"io/fs"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apiextensions-apiserver/pkg/crdserverscheme"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresource/tableconvertor"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/endpoints/handlers"
	"k8s.io/apiserver/pkg/storage/names"
	"k8s.io/client-go/util/jsonpath"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/yaml"
)

// custom is a kind of a CustomResourceDefinition, in its one version.
type custom struct {
	kind       *kind
	listKind   string
	structural *structuralschema.Structural
}

// definition is what a custom is made of, which is not needed once it is: the same schema takes some MiB in each of its forms.
type definition struct {
	*custom
	crd     *apiextensionsv1.CustomResourceDefinition
	version apiextensionsv1.CustomResourceDefinitionVersion
	props   *apiextensions.JSONSchemaProps
}

// readCRDs reads the definitions in the YAML files of a folder.
func readCRDs(files fs.FS) ([]*definition, error) {
	found, err := fs.Glob(files, "*.yaml")
	if err != nil {
		return nil, err
	}
	all := make([]*definition, 0, len(found))
	for _, name := range found {
		data, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, err
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(data, crd); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		c, err := newDefinition(crd)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, c)
	}
	return all, nil
}

func newDefinition(crd *apiextensionsv1.CustomResourceDefinition) (*definition, error) {
	apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&crd.Spec)
	if n := len(crd.Spec.Versions); n != 1 || crd.Spec.Versions[0].Schema == nil {
		return nil, fmt.Errorf("%s has %d versions; served is one, with a schema", crd.Name, n)
	}
	c := &definition{custom: &custom{listKind: crd.Spec.Names.ListKind}, crd: crd, version: crd.Spec.Versions[0]}
	internal := &apiextensions.CustomResourceValidation{}
	if err := apiextensionsv1.Convert_v1_CustomResourceValidation_To_apiextensions_CustomResourceValidation(c.version.Schema, internal, nil); err != nil {
		return nil, err
	}
	c.props = internal.OpenAPIV3Schema
	structural, err := structuralschema.NewStructural(c.props)
	if err != nil {
		return nil, err
	}
	c.structural = structural.DeepCopy()
	if err := defaulting.PruneDefaults(c.structural); err != nil {
		return nil, err
	}
	names := crd.Spec.Names
	c.kind = &kind{plural: names.Plural, namespaced: crd.Spec.Scope == apiextensionsv1.NamespaceScoped,
		short: names.ShortNames, categories: names.Categories}
	c.kind.gvk.Group, c.kind.gvk.Version, c.kind.gvk.Kind = crd.Spec.Group, c.version.Name, names.Kind
	c.kind.schema = c.published
	return c, nil
}

// addCustoms adds the kinds of the definitions to a server that has no store yet.
func (s *Server) addCustoms(files fs.FS) error {
	all, err := readCRDs(files)
	if err != nil {
		return err
	}
	types, err := customTypes(all)
	if err != nil {
		return err
	}
	for _, c := range all {
		if err := c.complete(s.spaces, types); err != nil {
			return fmt.Errorf("%s: %w", c.crd.Name, err)
		}
		s.kinds = append(s.kinds, c.kind)
	}
	return nil
}

// complete makes what serves the kind.
func (c *definition) complete(spaces *namespaces, types managedfields.TypeConverter) error {
	rules, err := c.strategy()
	if err != nil {
		return err
	}
	columns := c.version.AdditionalPrinterColumns
	if len(columns) == 0 {
		columns = columnsOf("")
	}
	printed, err := tableconvertor.New(columns)
	if err != nil {
		return err
	}
	k := c.kind
	coerce := &coercer{kind: k.gvk, structural: c.structural}
	k.main = &resource{TableConvertor: printed, spaces: spaces, name: k.groupResource(), singular: c.crd.Spec.Names.Singular,
		strategy: rules, newFunc: c.empty, newList: c.emptyList, fieldsOf: rules.selectableFields, settle: coerce.settle, show: unchanged, keep: unchanged}
	k.main.table = &table{name: k.groupResource().String(), codec: codec{
		encode: func(object runtime.Object) ([]byte, error) { return object.(*unstructured.Unstructured).MarshalJSON() },
		decode: func(data []byte) (runtime.Object, error) {
			u := &unstructured.Unstructured{}
			if err := u.UnmarshalJSON(data); err != nil {
				return nil, err
			}
			return u, coerce.repair(u)
		}}}
	k.patches = patchTypes(true)
	manage := func(scope handlers.RequestScope, reset map[fieldpath.APIVersion]*fieldpath.Set) (*managedfields.FieldManager, error) {
		return managedfields.NewDefaultCRDFieldManager(types, scope.Convertor, scope.Defaulter, scope.Creater, scope.Kind, //nolint:misspell // Kubernetes' word
			scope.HubGroupVersion, scope.Subresource, fieldpath.NewExcludeFilterSetMap(reset))
	}
	var status strategy
	if rules.status {
		status = customStatus{rules}
	}
	return k.addScopes(c.scope(coerce), manage, status, rules.scale)
}

func (c *custom) empty() runtime.Object {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(c.kind.gvk)
	return u
}

func (c *custom) emptyList() runtime.Object {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(c.kind.gvk.GroupVersion().WithKind(c.listKind))
	return list
}

func (c *definition) strategy() (*customStrategy, error) {
	s := &customStrategy{ObjectTyper: crdserverscheme.NewUnstructuredObjectTyper(), NameGenerator: names.SimpleNameGenerator,
		kind: c.kind.gvk, namespaced: c.kind.namespaced, structural: c.structural,
		rules: newRules(c.structural)}
	var err error
	if s.schema, _, err = validation.NewSchemaValidator(c.props); err != nil {
		return nil, err
	}
	if sub := c.version.Subresources; sub != nil {
		s.status = sub.Status != nil
		if sub.Scale != nil {
			s.scale = &scalePaths{spec: sub.Scale.SpecReplicasPath, status: sub.Scale.StatusReplicasPath}
			if sub.Scale.LabelSelectorPath != nil {
				s.scale.selector = *sub.Scale.LabelSelectorPath
			}
		}
	}
	if props, ok := c.props.Properties["status"]; ok && s.status {
		if s.statusSchema, _, err = validation.NewSchemaValidator(&props); err != nil {
			return nil, err
		}
	}
	for _, f := range c.version.SelectableFields {
		parsed := jsonpath.New("selectableField").AllowMissingKeys(true)
		if err := parsed.Parse("{" + f.JSONPath + "}"); err != nil {
			return nil, err
		}
		s.selectable = append(s.selectable, selectable{strings.TrimPrefix(f.JSONPath, "."), parsed})
	}
	return s, nil
}

// selectable is a field that the definition lets one select by.
type selectable struct {
	name string
	path *jsonpath.JSONPath
}

func (s *customStrategy) selectableFields(object runtime.Object) (fields.Set, error) {
	u, ok := object.(*unstructured.Unstructured)
	if !ok {
		return nil, fmt.Errorf("%T is not a custom resource", object)
	}
	set := fields.Set{"metadata.name": u.GetName()}
	if s.namespaced {
		set["metadata.namespace"] = u.GetNamespace()
	}
	for _, f := range s.selectable {
		results, err := f.path.FindResults(u.Object)
		if err != nil {
			return nil, err
		}
		set[f.name] = ""
		if len(results) > 0 && len(results[0]) > 0 {
			if value := results[0][0].Interface(); value != nil {
				set[f.name] = fmt.Sprint(value)
			}
		}
	}
	return set, nil
}

// knows says whether a list can be selected by a field.
func (s *customStrategy) knows(label string) bool {
	if label == "metadata.name" || s.namespaced && label == "metadata.namespace" {
		return true
	}
	for _, f := range s.selectable {
		if f.name == label {
			return true
		}
	}
	return false
}

// creationTimestamp is how the column of the age is described.
var creationTimestamp = metav1.ObjectMeta{}.SwaggerDoc()["creationTimestamp"]
