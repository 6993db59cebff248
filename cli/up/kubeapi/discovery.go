// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"net/http"
	"slices"
	"strings"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// aggregated is the media type of the answer that says everything at once.
const aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

var (
	allVerbs  = metav1.Verbs{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}
	partVerbs = metav1.Verbs{"get", "patch", "update"}
)

// serveGroups answers /api and /apis.
func (s *Server) serveGroups(w http.ResponseWriter, req *http.Request) {
	legacy := strings.Trim(req.URL.Path, "/") == "api"
	groups := s.groups(legacy)
	switch {
	case wantsAggregated(req):
		list := apidiscoveryv2.APIGroupDiscoveryList{
			TypeMeta: metav1.TypeMeta{APIVersion: "apidiscovery.k8s.io/v2", Kind: "APIGroupDiscoveryList"}}
		for _, g := range groups {
			list.Items = append(list.Items, s.discover(g))
		}
		w.Header().Set("Vary", "Accept")
		writeJSON(w, aggregated, list)
	case legacy:
		writeJSON(w, "application/json", metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}})
	default:
		list := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIGroupList"}}
		for _, g := range groups {
			list.Groups = append(list.Groups, apiGroup(g))
		}
		writeJSON(w, "application/json", list)
	}
}

func wantsAggregated(req *http.Request) bool {
	for accepted := range strings.SplitSeq(req.Header.Get("Accept"), ",") {
		accepted = strings.ReplaceAll(accepted, " ", "")
		if strings.HasPrefix(accepted, "application/json;") && strings.Contains(accepted, "g=apidiscovery.k8s.io") && strings.Contains(accepted, "v=v2;") {
			return true
		}
	}
	return false
}

// groups are those of /api, which has no name, or of /apis. Each has one version.
func (s *Server) groups(legacy bool) []schema.GroupVersion {
	return slices.DeleteFunc(s.groupVersions(), func(gv schema.GroupVersion) bool { return (gv.Group == "") != legacy })
}

func apiGroup(gv schema.GroupVersion) metav1.APIGroup {
	version := metav1.GroupVersionForDiscovery{GroupVersion: gv.String(), Version: gv.Version}
	return metav1.APIGroup{Name: gv.Group, Versions: []metav1.GroupVersionForDiscovery{version}, PreferredVersion: version}
}

// serveGroup answers /apis/GROUP; it says whether there is one.
func (s *Server) serveGroup(w http.ResponseWriter, name string) bool {
	for _, gv := range s.groups(false) {
		if gv.Group == name {
			group := apiGroup(gv)
			group.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "APIGroup"}
			writeJSON(w, "application/json", group)
			return true
		}
	}
	return false
}

// serveResources answers /api/v1 and /apis/GROUP/VERSION; it says whether there is one.
func (s *Server) serveResources(w http.ResponseWriter, gv schema.GroupVersion) bool {
	list := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIResourceList"}, GroupVersion: gv.String()}
	for _, k := range s.kinds {
		if k.gvk.GroupVersion() != gv {
			continue
		}
		list.APIResources = append(list.APIResources, metav1.APIResource{Name: k.plural, SingularName: k.main.singular, Namespaced: k.namespaced,
			Kind: k.gvk.Kind, Verbs: allVerbs, ShortNames: k.short, Categories: k.categories})
		if k.status != nil {
			list.APIResources = append(list.APIResources, metav1.APIResource{Name: k.plural + "/status", Namespaced: k.namespaced, Kind: k.gvk.Kind, Verbs: partVerbs})
		}
		if k.scale != nil {
			list.APIResources = append(list.APIResources, metav1.APIResource{Name: k.plural + "/scale", Namespaced: k.namespaced,
				Group: autoscalingv1.GroupName, Version: "v1", Kind: "Scale", Verbs: partVerbs})
		}
	}
	if len(list.APIResources) == 0 {
		return false
	}
	writeJSON(w, "application/json", list)
	return true
}

func (s *Server) discover(gv schema.GroupVersion) apidiscoveryv2.APIGroupDiscovery {
	version := apidiscoveryv2.APIVersionDiscovery{Version: gv.Version, Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent}
	for _, k := range s.kinds {
		if k.gvk.GroupVersion() != gv {
			continue
		}
		r := apidiscoveryv2.APIResourceDiscovery{Resource: k.plural, Scope: apidiscoveryv2.ScopeCluster, SingularResource: k.main.singular,
			ResponseKind: responseKind(k.gvk), Verbs: allVerbs, ShortNames: k.short, Categories: k.categories}
		if k.namespaced {
			r.Scope = apidiscoveryv2.ScopeNamespace
		}
		if k.status != nil {
			r.Subresources = append(r.Subresources, apidiscoveryv2.APISubresourceDiscovery{Subresource: "status", ResponseKind: responseKind(k.gvk), Verbs: partVerbs})
		}
		if k.scale != nil {
			r.Subresources = append(r.Subresources, apidiscoveryv2.APISubresourceDiscovery{Subresource: "scale",
				ResponseKind: responseKind(autoscalingv1.SchemeGroupVersion.WithKind("Scale")), Verbs: partVerbs})
		}
		version.Resources = append(version.Resources, r)
	}
	return apidiscoveryv2.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: gv.Group}, Versions: []apidiscoveryv2.APIVersionDiscovery{version}}
}

func responseKind(gvk schema.GroupVersionKind) *metav1.GroupVersionKind {
	return &metav1.GroupVersionKind{Group: gvk.Group, Version: gvk.Version, Kind: gvk.Kind}
}
