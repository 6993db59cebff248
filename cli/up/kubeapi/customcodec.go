// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"fmt"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/crdserverscheme"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/runtime/serializer/versioning"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apiserver/pkg/endpoints/handlers"
)

// This file decodes and encodes custom resources as apiextensions-apiserver's
// customresource_handler.go does, which exports none of it, for definitions of one version.

// metaScheme knows what is not a custom resource and is sent or received with them.
func metaScheme(gv schema.GroupVersion) *runtime.Scheme {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	metav1.AddToGroupVersion(scheme, gv)
	scheme.AddUnversionedTypes(schema.GroupVersion{Version: "v1"}, &metav1.Status{})
	utilruntime.Must(autoscalingv1.AddToScheme(scheme))
	return scheme
}

// scope is what the handlers need to read and write the kind.
func (c *custom) scope(coerce *coercer) handlers.RequestScope {
	scheme := metaScheme(c.kind.gvk.GroupVersion())
	parameters := runtime.NewScheme()
	parameters.AddUnversionedTypes(c.kind.gvk.GroupVersion(),
		&metav1.ListOptions{}, &metav1.GetOptions{}, &metav1.DeleteOptions{})
	typer := objectTyper{parameters, crdserverscheme.NewUnstructuredObjectTyper()}
	convertor := customConvertor{scheme: scheme, knows: c.knows}
	types := customSerializer{scheme, coerce, convertor, mediaTypes(typer)}
	return handlers.RequestScope{
		Serializer: types, StandardSerializers: types.media[:2], // not protobuf
		ParameterCodec:  runtime.NewParameterCodec(parameters),
		Creater:         customCreator{}, //nolint:misspell // Kubernetes' word
		Convertor:       safely{convertor},
		UnsafeConvertor: convertor,
		Defaulter:       defaulter{parameters, coerce},
		Typer:           typer,
	}
}

func (c *custom) knows(label string) bool {
	return c.kind.main.strategy.(*customStrategy).knows(label)
}

func mediaTypes(typer runtime.ObjectTyper) []runtime.SerializerInfo {
	jsonWith := func(o json.SerializerOptions) runtime.Serializer {
		return json.NewSerializerWithOptions(json.DefaultMetaFactory, customCreator{}, typer, o)
	}
	return []runtime.SerializerInfo{{
		MediaType: runtime.ContentTypeJSON, MediaTypeType: "application", MediaTypeSubType: "json", EncodesAsText: true,
		Serializer:       jsonWith(json.SerializerOptions{StreamingCollectionsEncoding: true}),
		PrettySerializer: jsonWith(json.SerializerOptions{Pretty: true}),
		StrictSerializer: jsonWith(json.SerializerOptions{Strict: true, StreamingCollectionsEncoding: true}),
		StreamSerializer: &runtime.StreamSerializerInfo{EncodesAsText: true, Serializer: jsonWith(json.SerializerOptions{}), Framer: json.Framer},
	}, {
		MediaType: runtime.ContentTypeYAML, MediaTypeType: "application", MediaTypeSubType: "yaml", EncodesAsText: true,
		Serializer:       jsonWith(json.SerializerOptions{Yaml: true}),
		StrictSerializer: jsonWith(json.SerializerOptions{Yaml: true, Strict: true}),
	}, {
		MediaType: runtime.ContentTypeProtobuf, MediaTypeType: "application", MediaTypeSubType: "vnd.kubernetes.protobuf",
		Serializer: protobuf.NewSerializerWithOptions(customCreator{}, typer, protobuf.SerializerOptions{StreamingCollectionsEncoding: true}),
		StreamSerializer: &runtime.StreamSerializerInfo{Serializer: protobuf.NewRawSerializer(customCreator{}, typer),
			Framer: protobuf.LengthDelimitedFramer},
	}}
}

// customSerializer prunes and defaults what it decodes.
type customSerializer struct {
	scheme    *runtime.Scheme
	coerce    *coercer
	convertor runtime.ObjectConvertor
	media     []runtime.SerializerInfo
}

func (s customSerializer) SupportedMediaTypes() []runtime.SerializerInfo { return s.media }

func (s customSerializer) EncoderForVersion(encoder runtime.Encoder, gv runtime.GroupVersioner) runtime.Encoder {
	return versioning.NewCodec(encoder, nil, safely{s.convertor}, s.scheme, s.scheme, s.scheme, gv, nil, "customSerializer")
}

func (s customSerializer) DecoderToVersion(decoder runtime.Decoder, gv runtime.GroupVersioner) runtime.Decoder {
	coerce := *s.coerce
	if strict, ok := decoder.(*json.Serializer); ok {
		coerce.unknown = strict.IsStrict()
	}
	return versioning.NewCodec(nil, coercingDecoder{decoder, &coerce}, runtime.UnsafeObjectConvertor(s.scheme), s.scheme, s.scheme,
		defaulter{s.scheme, s.coerce}, nil, gv, "customSerializer")
}

type coercingDecoder struct {
	runtime.Decoder
	coerce *coercer
}

func (d coercingDecoder) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	var strict []error
	object, gvk, err := d.Decoder.Decode(data, defaults, into)
	if err != nil {
		errs, ok := runtime.AsStrictDecodingError(err)
		if !ok || object == nil {
			return nil, gvk, err
		}
		strict = errs.Errors()
	}
	u, ok := object.(*unstructured.Unstructured)
	if !ok {
		return object, gvk, nil
	}
	unknown, err := d.coerce.apply(u)
	if err != nil {
		return nil, gvk, err
	}
	for _, path := range unknown {
		strict = append(strict, fmt.Errorf("unknown field %q", path))
	}
	if d.coerce.unknown && len(strict) > 0 {
		return object, gvk, runtime.NewStrictDecodingError(strict)
	}
	return object, gvk, nil
}

// coercer does to a custom resource what decoding into Go types does to others.
type coercer struct {
	kind       schema.GroupVersionKind
	structural *structuralschema.Structural
	unknown    bool // report fields that are not in the schema
	repairing  bool // drop malformed metadata: the object was stored by another version
}

// apply prunes what the schema does not have, and returns the paths of that.
func (c *coercer) apply(u *unstructured.Unstructured) (unknown []string, err error) {
	kind, hasKind, err := unstructured.NestedString(u.Object, "kind")
	if err != nil {
		return nil, err
	}
	version, hasVersion, err := unstructured.NestedString(u.Object, "apiVersion")
	if err != nil {
		return nil, err
	}
	metadata, hasMetadata, unknown, err := objectmeta.GetObjectMetaWithOptions(u.Object, objectmeta.ObjectMetaOptions{
		DropMalformedFields: c.repairing, ReturnUnknownFieldPaths: c.unknown})
	if err != nil {
		return nil, err
	}
	if version == c.kind.GroupVersion().String() && kind == c.kind.Kind {
		unknown = append(unknown, pruning.PruneWithOptions(u.Object, c.structural, true,
			structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: c.unknown})...)
		defaulting.PruneNonNullableNullsWithoutDefaults(u.Object, c.structural)
		err, paths := objectmeta.CoerceWithOptions(nil, u.Object, c.structural, false, objectmeta.CoerceOptions{
			DropInvalidFields: c.repairing, ReturnUnknownFieldPaths: c.unknown})
		if err != nil {
			return nil, err
		}
		unknown = append(unknown, paths...)
	}
	if hasKind {
		u.SetKind(kind)
	}
	if hasVersion {
		u.SetAPIVersion(version)
	}
	if hasMetadata {
		return unknown, objectmeta.SetObjectMeta(u.Object, metadata)
	}
	return unknown, nil
}

// settle gives an object the form that it has when it is read from disk.
func (c *coercer) settle(object runtime.Object) error {
	u := object.(*unstructured.Unstructured)
	if _, err := c.apply(u); err != nil {
		return err
	}
	defaulting.Default(u.Object, c.structural)
	return nil
}

// repair is settle for an object that another version may have stored.
func (c *coercer) repair(u *unstructured.Unstructured) error {
	r := *c
	r.repairing = true
	return r.settle(u)
}

type defaulter struct {
	runtime.ObjectDefaulter
	coerce *coercer
}

func (d defaulter) Default(in runtime.Object) {
	u, ok := in.(runtime.Unstructured)
	if !ok || u.GetObjectKind().GroupVersionKind().GroupKind() != d.coerce.kind.GroupKind() {
		d.ObjectDefaulter.Default(in)
		return
	}
	defaulting.Default(u.UnstructuredContent(), d.coerce.structural)
}

type objectTyper struct {
	runtime.ObjectTyper
	custom runtime.ObjectTyper
}

func (t objectTyper) ObjectKinds(object runtime.Object) ([]schema.GroupVersionKind, bool, error) {
	if _, ok := object.(runtime.Unstructured); ok {
		return t.custom.ObjectKinds(object)
	}
	return t.ObjectTyper.ObjectKinds(object)
}

type customCreator struct{}

func (customCreator) New(kind schema.GroupVersionKind) (runtime.Object, error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(kind)
	return u, nil
}

// customConvertor converts nothing: there is one version.
type customConvertor struct {
	scheme *runtime.Scheme
	knows  func(label string) bool
}

func (c customConvertor) ConvertFieldLabel(_ schema.GroupVersionKind, label, value string) (string, string, error) {
	if !c.knows(label) {
		return "", "", fmt.Errorf("field label not supported: %s", label)
	}
	return label, value, nil
}

func (c customConvertor) Convert(in, out, context any) error {
	from, ok := in.(*unstructured.Unstructured)
	to, ok2 := out.(*unstructured.Unstructured)
	if !ok || !ok2 {
		return c.scheme.Convert(in, out, context)
	}
	to.SetUnstructuredContent(from.UnstructuredContent())
	return nil
}

func (c customConvertor) ConvertToVersion(in runtime.Object, target runtime.GroupVersioner) (runtime.Object, error) {
	if _, ok := in.(runtime.Unstructured); !ok {
		return c.scheme.ConvertToVersion(in, target)
	}
	from := in.GetObjectKind().GroupVersionKind()
	if to, ok := target.KindForGroupVersionKinds([]schema.GroupVersionKind{from}); !ok || to.GroupVersion() != from.GroupVersion() {
		return nil, fmt.Errorf("%v is unstructured and is not suitable for converting to %q", from, target)
	}
	return in, nil
}

// safely converts a copy.
type safely struct{ runtime.ObjectConvertor }

func (s safely) Convert(in, out, context any) error {
	if object, ok := in.(runtime.Object); ok {
		in = object.DeepCopyObject()
	}
	return s.ObjectConvertor.Convert(in, out, context)
}

func (s safely) ConvertToVersion(in runtime.Object, target runtime.GroupVersioner) (runtime.Object, error) {
	return s.ObjectConvertor.ConvertToVersion(in.DeepCopyObject(), target)
}
