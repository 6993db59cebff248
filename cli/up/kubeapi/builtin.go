// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"encoding/json"
	"reflect"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresource/tableconvertor"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/managedfields"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apiserver/pkg/endpoints/handlers"
	"k8s.io/apiserver/pkg/storage/names"
	"k8s.io/client-go/applyconfigurations"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// builtin is a kind of Kubernetes' own.
type builtin struct {
	object, list runtime.Object
	group        schema.GroupVersion
	plural       string
	short        []string
	categories   []string
	cluster      bool // not in a namespace
	status       bool
	generation   bool
	scale        bool
	passing      bool   // not kept over restarts
	columns      string // name=JSONPath, in order, before Age
	fields       func(runtime.Object) fields.Set
}

var builtins = []builtin{
	{object: &corev1.Namespace{}, list: &corev1.NamespaceList{}, group: corev1.SchemeGroupVersion, plural: "namespaces",
		short: []string{"ns"}, cluster: true, status: true, columns: "Status=.status.phase"},
	{object: &corev1.Secret{}, list: &corev1.SecretList{}, group: corev1.SchemeGroupVersion, plural: "secrets",
		columns: "Type=.type", fields: func(o runtime.Object) fields.Set {
			return fields.Set{"type": string(o.(*corev1.Secret).Type)}
		}},
	{object: &corev1.ServiceAccount{}, list: &corev1.ServiceAccountList{}, group: corev1.SchemeGroupVersion, plural: "serviceaccounts",
		short: []string{"sa"}},
	{object: &corev1.Service{}, list: &corev1.ServiceList{}, group: corev1.SchemeGroupVersion, plural: "services",
		short: []string{"svc"}, categories: []string{"all"}, status: true, columns: "Type=.spec.type Ports=.spec.ports[*].port"},
	{object: &corev1.Pod{}, list: &corev1.PodList{}, group: corev1.SchemeGroupVersion, plural: "pods",
		short: []string{"po"}, categories: []string{"all"}, status: true, generation: true,
		columns: "Status=.status.phase Node=.spec.nodeName", fields: podFields},
	{object: &corev1.Event{}, list: &corev1.EventList{}, group: corev1.SchemeGroupVersion, plural: "events",
		short: []string{"ev"}, passing: true, fields: eventFields,
		columns: "Type=.type Reason=.reason Object=.involvedObject.name Message=.message"},
	{object: &eventsv1.Event{}, list: &eventsv1.EventList{}, group: eventsv1.SchemeGroupVersion, plural: "events",
		short: []string{"ev"}, passing: true, columns: "Type=.type Reason=.reason Object=.regarding.name Message=.note"},
	{object: &appsv1.StatefulSet{}, list: &appsv1.StatefulSetList{}, group: appsv1.SchemeGroupVersion, plural: "statefulsets",
		short: []string{"sts"}, categories: []string{"all"}, status: true, generation: true, scale: true,
		columns: "Ready=.status.readyReplicas Replicas=.spec.replicas"},
	{object: &appsv1.Deployment{}, list: &appsv1.DeploymentList{}, group: appsv1.SchemeGroupVersion, plural: "deployments",
		short: []string{"deploy"}, categories: []string{"all"}, status: true, generation: true, scale: true,
		columns: "Ready=.status.readyReplicas Replicas=.spec.replicas Available=.status.availableReplicas"},
	{object: &batchv1.CronJob{}, list: &batchv1.CronJobList{}, group: batchv1.SchemeGroupVersion, plural: "cronjobs",
		short: []string{"cj"}, categories: []string{"all"}, status: true, generation: true,
		columns: "Schedule=.spec.schedule Suspend=.spec.suspend Last_Schedule=.status.lastScheduleTime"},
	{object: &batchv1.Job{}, list: &batchv1.JobList{}, group: batchv1.SchemeGroupVersion, plural: "jobs",
		categories: []string{"all"}, status: true, generation: true, columns: "Succeeded=.status.succeeded Failed=.status.failed"},
	{object: &policyv1.PodDisruptionBudget{}, list: &policyv1.PodDisruptionBudgetList{}, group: policyv1.SchemeGroupVersion,
		plural: "poddisruptionbudgets", short: []string{"pdb"}, status: true, generation: true,
		columns: "Min_Available=.spec.minAvailable Max_Unavailable=.spec.maxUnavailable"},
	{object: &coordinationv1.Lease{}, list: &coordinationv1.LeaseList{}, group: coordinationv1.SchemeGroupVersion, plural: "leases",
		passing: true, columns: "Holder=.spec.holderIdentity"},
}

func podFields(o runtime.Object) fields.Set {
	pod := o.(*corev1.Pod)
	return fields.Set{"spec.nodeName": pod.Spec.NodeName, "status.phase": string(pod.Status.Phase),
		"spec.serviceAccountName": pod.Spec.ServiceAccountName}
}

func eventFields(o runtime.Object) fields.Set {
	e := o.(*corev1.Event)
	about := e.InvolvedObject
	return fields.Set{"involvedObject.kind": about.Kind, "involvedObject.namespace": about.Namespace, "involvedObject.name": about.Name,
		"involvedObject.uid": string(about.UID), "involvedObject.apiVersion": about.APIVersion, "involvedObject.fieldPath": about.FieldPath,
		"involvedObject.resourceVersion": about.ResourceVersion, "reason": e.Reason, "type": e.Type, "source": e.Source.Component,
		"reportingComponent": e.ReportingController}
}

// builtinScheme knows the built-in kinds, and which of their fields can be selected by.
func builtinScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, appsv1.AddToScheme, policyv1.AddToScheme,
		coordinationv1.AddToScheme, eventsv1.AddToScheme, batchv1.AddToScheme, autoscalingv1.AddToScheme} {
		utilruntime.Must(add(scheme))
	}
	for _, b := range builtins {
		if b.fields == nil {
			continue
		}
		known := b.fields(b.object)
		utilruntime.Must(scheme.AddFieldLabelConversionFunc(b.gvk(), func(label, value string) (string, string, error) {
			if _, ok := known[label]; ok {
				return label, value, nil
			}
			return runtime.DefaultMetaV1FieldSelectorConversion(label, value)
		}))
	}
	return scheme
}

func (b builtin) gvk() schema.GroupVersionKind {
	return b.group.WithKind(reflect.TypeOf(b.object).Elem().Name())
}

// newOf returns a function that makes an empty object of a type.
func newOf(object runtime.Object) func() runtime.Object {
	t := reflect.TypeOf(object).Elem()
	return func() runtime.Object { return reflect.New(t).Interface().(runtime.Object) }
}

// typedCodec keeps objects of a Go type as JSON.
func typedCodec(empty func() runtime.Object) codec {
	return codec{
		encode: func(object runtime.Object) ([]byte, error) { return json.Marshal(object) },
		decode: func(data []byte) (runtime.Object, error) {
			object := empty()
			return object, json.Unmarshal(data, object)
		},
	}
}

// metaFields adds what every kind can be selected by.
func metaFields(more func(runtime.Object) fields.Set) func(runtime.Object) (fields.Set, error) {
	return func(object runtime.Object) (fields.Set, error) {
		accessor, err := meta.Accessor(object)
		if err != nil {
			return nil, err
		}
		set := fields.Set{}
		if more != nil {
			set = more(object)
		}
		set["metadata.name"], set["metadata.namespace"] = accessor.GetName(), accessor.GetNamespace()
		return set, nil
	}
}

func unchanged(object runtime.Object) runtime.Object { return object }

// clearKind: objects in memory bear no kind, which is their Go type's.
func clearKind(object runtime.Object) error {
	object.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	return nil
}

// addBuiltins adds the built-in kinds to a server that has no store yet.
func (s *Server) addBuiltins() error {
	scheme := builtinScheme()
	types := buildLater(func() managedfields.TypeConverter { return applyconfigurations.NewTypeConverter(scheme) })
	for _, b := range builtins {
		k, err := s.newBuiltin(b, scheme, types)
		if err != nil {
			return err
		}
		s.kinds = append(s.kinds, k)
		if b.plural == "namespaces" {
			s.spaces.resource = k.main
		}
	}
	return s.shareEvents()
}

func (s *Server) newBuiltin(b builtin, scheme *runtime.Scheme, types managedfields.TypeConverter) (*kind, error) {
	k := &kind{gvk: b.gvk(), plural: b.plural, namespaced: !b.cluster, short: b.short, categories: b.categories, goType: reflect.TypeOf(b.object).Elem()}
	rules := builtinStrategy{scheme, names.SimpleNameGenerator, k.gvk, k.namespaced, b.status, b.generation}
	columns, err := tableconvertor.New(columnsOf(b.columns))
	if err != nil {
		return nil, err
	}
	k.main = &resource{TableConvertor: columns, spaces: s.spaces, name: k.groupResource(), singular: strings.ToLower(k.gvk.Kind), strategy: rules,
		newFunc: newOf(b.object), newList: newOf(b.list), fieldsOf: metaFields(b.fields), settle: clearKind, show: unchanged, keep: unchanged}
	k.main.table = &table{name: k.groupResource().String()}
	if !b.passing {
		k.main.table.codec = typedCodec(k.main.newFunc)
	}
	codecs := serializer.NewCodecFactory(scheme, serializer.WithStreamingCollectionEncodingToJSON(), serializer.WithStreamingCollectionEncodingToProtobuf())
	base := handlers.RequestScope{
		Serializer: codecs, ParameterCodec: runtime.NewParameterCodec(scheme),
		Creater:   scheme, //nolint:misspell // Kubernetes' word
		Convertor: scheme, Defaulter: scheme, Typer: scheme, UnsafeConvertor: runtime.UnsafeObjectConvertor(scheme),
	}
	field := func(scope handlers.RequestScope, reset map[fieldpath.APIVersion]*fieldpath.Set) (*managedfields.FieldManager, error) {
		merge := types
		if scope.Subresource == "scale" {
			var err error
			if merge, err = managedfields.NewTypeConverter(metaSchemas(), false); err != nil {
				return nil, err
			}
		}
		return managedfields.NewDefaultFieldManager(merge, scope.Convertor, scope.Defaulter, scope.Creater, scope.Kind, //nolint:misspell // likewise
			scope.HubGroupVersion, scope.Subresource, fieldpath.NewExcludeFilterSetMap(reset))
	}
	k.patches = patchTypes(false)
	var status strategy
	if b.status {
		status = builtinStatus{rules}
	}
	var scaled *scalePaths
	if b.scale {
		scaled = &scalePaths{"spec.replicas", "status.replicas", "spec.selector"}
	}
	return k, k.addScopes(base, field, status, scaled)
}

// columnsOf reads "Name=JSONPath Other_Name=JSONPath", and adds the age.
func columnsOf(text string) []apiextensionsv1.CustomResourceColumnDefinition {
	columns := []apiextensionsv1.CustomResourceColumnDefinition{}
	for word := range strings.FieldsSeq(text) {
		name, path, _ := strings.Cut(word, "=")
		columns = append(columns, apiextensionsv1.CustomResourceColumnDefinition{
			Name: strings.ReplaceAll(name, "_", " "), Type: "string", JSONPath: path})
	}
	return append(columns, apiextensionsv1.CustomResourceColumnDefinition{
		Name: "Age", Type: "date", Description: creationTimestamp, JSONPath: ".metadata.creationTimestamp"})
}
