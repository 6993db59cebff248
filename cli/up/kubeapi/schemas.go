// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"encoding/json"
	"maps"
	"reflect"
	"strings"
	"sync"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	generatedopenapi "k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// schemas are OpenAPI schemas by name. Those of the built-in kinds are read off their Go
// types, which have the descriptions (SwaggerDoc) and the keys by which lists are merged:
// the generated ones are part of kube-apiserver alone.
type schemas map[string]*spec.Schema

// add adds a struct type, with what it refers to, and returns its name.
func (s schemas) add(t reflect.Type) string {
	name := t.PkgPath() + "." + t.Name()
	value := reflect.Zero(t).Interface()
	if named, ok := value.(interface{ OpenAPIModelName() string }); ok {
		name = named.OpenAPIModelName()
	}
	if s[name] != nil {
		return name
	}
	result := &spec.Schema{}
	s[name] = result // before its fields: types refer to themselves
	docs := map[string]string{}
	if documented, ok := value.(interface{ SwaggerDoc() map[string]string }); ok {
		docs = documented.SwaggerDoc()
	}
	result.Typed("object", "").WithDescription(docs[""])
	s.fields(result, t, docs)
	return name
}

func (s schemas) fields(to *spec.Schema, t reflect.Type, docs map[string]string) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" || !f.IsExported() {
			continue
		}
		if name == "" && (f.Anonymous || strings.Contains(options, "inline")) {
			inner := map[string]string{}
			if documented, ok := reflect.Zero(f.Type).Interface().(interface{ SwaggerDoc() map[string]string }); ok {
				inner = documented.SwaggerDoc()
			}
			s.fields(to, f.Type, inner)
			continue
		}
		property := s.of(f.Type)
		property.Description = docs[name]
		if merge := f.Tag.Get("patchStrategy"); merge != "" {
			property.AddExtension("x-kubernetes-patch-strategy", merge)
		}
		if key := f.Tag.Get("patchMergeKey"); key != "" {
			property.AddExtension("x-kubernetes-patch-merge-key", key)
		}
		to.SetProperty(name, *property)
	}
}

// of is the schema of a type where it is used.
func (s schemas) of(t reflect.Type) *spec.Schema {
	if t.Kind() == reflect.Pointer {
		return s.of(t.Elem())
	}
	value := reflect.Zero(t).Interface()
	if scalar, ok := value.(interface {
		OpenAPISchemaType() []string
		OpenAPISchemaFormat() string
	}); ok {
		result := &spec.Schema{}
		if types := scalar.OpenAPISchemaType(); len(types) > 0 {
			result.Typed(types[0], scalar.OpenAPISchemaFormat())
		}
		return result
	}
	if _, ok := reflect.New(t).Interface().(json.Marshaler); ok { // FieldsV1, RawExtension
		return spec.MapProperty(nil)
	}
	switch t.Kind() {
	case reflect.Struct:
		return reference(s.add(t))
	case reflect.Map:
		return spec.MapProperty(s.of(t.Elem()))
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return spec.StrFmtProperty("byte")
		}
		return spec.ArrayProperty(s.of(t.Elem()))
	case reflect.Bool:
		return spec.BooleanProperty()
	case reflect.Int32, reflect.Uint32:
		return spec.Int32Property()
	case reflect.Int, reflect.Int64, reflect.Uint64:
		return spec.Int64Property()
	case reflect.Float32, reflect.Float64:
		return spec.Float64Property()
	}
	return spec.StringProperty()
}

// metaSchemas are the generated schemas of metadata and of Scale.
var metaSchemas = sync.OnceValue(func() schemas {
	all := generatedopenapi.GetOpenAPIDefinitions(func(name string) spec.Ref {
		return spec.MustCreateRef("#/components/schemas/" + common.EscapeJsonPointer(name))
	})
	result := schemas{}
	var add func(string)
	add = func(name string) {
		definition, ok := all[name]
		if !ok || result[name] != nil {
			return
		}
		result[name] = &definition.Schema
		for _, needed := range definition.Dependencies {
			add(needed)
		}
	}
	add(metav1.ObjectMeta{}.OpenAPIModelName())
	scale := autoscalingv1.Scale{}.OpenAPIModelName()
	add(scale)
	result[scale].AddExtension(kindExtension, []any{kindValue(autoscalingv1.SchemeGroupVersion.WithKind("Scale"))})
	return result
})

// customTypes tells how the fields of custom resources are merged.
func customTypes(all []*definition) (managedfields.TypeConverter, error) {
	models := maps.Clone(metaSchemas())
	for _, c := range all {
		models[modelName(c.kind.gvk)] = c.kind.schema()
	}
	return managedfields.NewTypeConverter(models, false)
}
