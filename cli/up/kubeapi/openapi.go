// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// kindExtension names the kind that a schema or an operation is of.
const kindExtension = "x-kubernetes-group-version-kind"

// document is the OpenAPI of a group and version, made when it is first asked for: what
// `kubectl explain` shows, and where kubectl looks whether the server checks fields.
type document struct {
	once sync.Once
	body []byte
	hash string
	err  error
}

func groupPath(gv schema.GroupVersion) string {
	if gv.Group == "" {
		return "api/" + gv.Version
	}
	return "apis/" + gv.String()
}

// serveOpenAPI answers below /openapi/v3.
func (s *Server) serveOpenAPI(w http.ResponseWriter, req *http.Request) {
	if wanted, ok := strings.CutPrefix(req.URL.Path, "/openapi/v3/"); ok {
		document := s.documents[wanted]
		if document == nil {
			http.NotFound(w, req)
			return
		}
		s.fill(wanted, document)
		if document.err != nil {
			http.Error(w, document.err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Etag", fmt.Sprintf("%q", document.hash))
		writeJSON(w, "application/json", json.RawMessage(document.body))
		return
	}
	type entry struct {
		URL string `json:"serverRelativeURL"`
	}
	paths := map[string]entry{}
	for path, document := range s.documents {
		s.fill(path, document)
		paths[path] = entry{"/openapi/v3/" + path + "?hash=" + document.hash}
	}
	writeJSON(w, "application/json", map[string]any{"paths": paths})
}

func (s *Server) fill(path string, d *document) {
	d.once.Do(func() {
		doc := s.openAPI(path)
		if d.body, d.err = json.Marshal(doc); d.err == nil {
			sum := sha256.Sum256(d.body)
			d.hash = fmt.Sprintf("%X", sum[:16])
		}
	})
}

func (s *Server) openAPI(path string) *spec3.OpenAPI {
	schemas := schemas{}
	doc := &spec3.OpenAPI{Version: "3.0.0",
		Info:       &spec.Info{InfoProps: spec.InfoProps{Title: "Substorm", Version: serverVersion().GitVersion}},
		Paths:      &spec3.Paths{Paths: map[string]*spec3.Path{}},
		Components: &spec3.Components{Schemas: schemas}}
	for _, k := range s.kinds {
		if groupPath(k.gvk.GroupVersion()) != path {
			continue
		}
		k.describe(schemas)
		collection := "/" + path + "/" + k.plural
		if k.namespaced {
			collection = "/" + path + "/namespaces/{namespace}/" + k.plural
			doc.Paths.Paths["/"+path+"/"+k.plural] = &spec3.Path{PathProps: spec3.PathProps{Get: k.operation("get")}}
		}
		doc.Paths.Paths[collection] = &spec3.Path{PathProps: spec3.PathProps{
			Get: k.operation("get"), Post: k.operation("post", fieldParameters...), Delete: k.operation("delete")}}
		doc.Paths.Paths[collection+"/{name}"] = &spec3.Path{PathProps: spec3.PathProps{
			Get: k.operation("get"), Put: k.operation("put", fieldParameters...), Delete: k.operation("delete"),
			Patch: k.operation("patch", append(slices.Clone(fieldParameters), "force")...)}}
	}
	return doc
}

var fieldParameters = []string{"dryRun", "fieldManager", "fieldValidation"}

func (k *kind) operation(verb string, parameters ...string) *spec3.Operation {
	op := &spec3.Operation{OperationProps: spec3.OperationProps{OperationId: verb + k.gvk.Kind,
		Responses: &spec3.Responses{ResponsesProps: spec3.ResponsesProps{StatusCodeResponses: map[int]*spec3.Response{
			http.StatusOK: {ResponseProps: spec3.ResponseProps{Description: "OK"}}}}}}}
	for _, name := range parameters {
		op.Parameters = append(op.Parameters, &spec3.Parameter{ParameterProps: spec3.ParameterProps{
			Name: name, In: "query", Schema: spec.StringProperty()}})
	}
	op.AddExtension(kindExtension, kindValue(k.gvk))
	return op
}

func kindValue(gvk schema.GroupVersionKind) map[string]any {
	return map[string]any{"group": gvk.Group, "version": gvk.Version, "kind": gvk.Kind}
}

// modelName is the name of a custom resource's schema: dev.substorm.v1alpha1.Site.
func modelName(gvk schema.GroupVersionKind) string {
	parts := strings.Split(gvk.Group, ".")
	slices.Reverse(parts)
	return strings.Join(append(parts, gvk.Version, gvk.Kind), ".")
}

// describe adds the kind's schema and those that it refers to.
func (k *kind) describe(to schemas) {
	var name string
	if k.schema != nil {
		name = modelName(k.gvk)
		to[name] = k.schema()
		for name, schema := range metaSchemas() {
			to[name] = schema
		}
	} else {
		name = to.add(k.goType)
	}
	to[name].AddExtension(kindExtension, []any{kindValue(k.gvk)})
}

// published is the schema of a definition as it is served: with apiVersion, kind and metadata. It is built again each time, which is
// seldom, and some MiB.
func (c *custom) published() *spec.Schema {
	s := c.structural.ToKubeOpenAPI()
	types := metav1.TypeMeta{}.SwaggerDoc()
	s.SetProperty("apiVersion", *spec.StringProperty().WithDescription(types["apiVersion"]))
	s.SetProperty("kind", *spec.StringProperty().WithDescription(types["kind"]))
	s.SetProperty("metadata", *reference(metav1.ObjectMeta{}.OpenAPIModelName()).
		WithDescription(metav1.PartialObjectMetadata{}.SwaggerDoc()["metadata"]))
	s.AddExtension(kindExtension, []any{kindValue(c.kind.gvk)})
	return s
}

func reference(name string) *spec.Schema { return spec.RefSchema("#/components/schemas/" + name) }

// groupVersions are those served, in order.
func (s *Server) groupVersions() []schema.GroupVersion {
	found := map[schema.GroupVersion]bool{}
	for _, k := range s.kinds {
		found[k.gvk.GroupVersion()] = true
	}
	return slices.SortedFunc(maps.Keys(found), func(a, b schema.GroupVersion) int { return strings.Compare(a.String(), b.String()) })
}
