// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 holds Substorm's custom resources as Go types. They are the
// source of the CRDs in crds/ (make generate): a field's comment is what
// `kubectl explain` prints.
//
// +kubebuilder:object:generate=true
// +groupName=substorm.dev
package v1alpha1

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// GroupVersion is the API group and version of every Substorm kind.
var GroupVersion = schema.GroupVersion{Group: "substorm.dev", Version: "v1alpha1"}

// SchemeBuilder registers the kinds with a runtime scheme.
var SchemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)

// AddToScheme adds the kinds of this package to a scheme.
var AddToScheme = SchemeBuilder.AddToScheme

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion,
		&Site{}, &SiteList{},
		&IngestGateway{}, &IngestGatewayList{},
		&FeedServer{}, &FeedServerList{},
		&Instrument{}, &InstrumentList{},
		&Feed{}, &FeedList{},
		&FeedConsumer{}, &FeedConsumerList{},
		&MirrorPartner{}, &MirrorPartnerList{},
	)
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
