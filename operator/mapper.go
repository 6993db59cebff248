// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"net/http"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// mapper remembers where a version of a kind is served. The cache asks for it whenever an object is read from one of several namespaces,
// and each question goes through all groups of the API server: a tenth of the work of a starting operator.
type mapper struct {
	meta.RESTMapper
	known sync.Map // of schema.GroupVersionKind: *meta.RESTMapping
}

func newMapper(cfg *rest.Config, httpClient *http.Client) (meta.RESTMapper, error) {
	dynamic, err := apiutil.NewDynamicRESTMapper(cfg, httpClient)
	return &mapper{RESTMapper: dynamic}, err
}

// RESTMapping implements meta.RESTMapper. The scope of a kind (namespaced or not) never changes; a kind that is not served yet is asked for again.
func (m *mapper) RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	if len(versions) != 1 {
		return m.RESTMapper.RESTMapping(kind, versions...)
	}
	key := kind.WithVersion(versions[0])
	if known, ok := m.known.Load(key); ok {
		return known.(*meta.RESTMapping), nil
	}
	found, err := m.RESTMapper.RESTMapping(kind, versions...)
	if err == nil {
		m.known.Store(key, found)
	}
	return found, err
}
