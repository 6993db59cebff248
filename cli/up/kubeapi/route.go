// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"crypto/subtle"
	"encoding/json"
	"fmt"
	"net/http"
	goruntime "runtime"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/version"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/warning"
)

// administrator is who has the token.
var administrator = &user.DefaultInfo{Name: "substorm:admin", Groups: []string{user.SystemPrivilegedGroup, user.AllAuthenticated}}

var requests = &request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}

// serverVersion is the version of the Kubernetes code that answers.
func serverVersion() version.Info {
	return version.Info{Major: "1", Minor: "37", GitVersion: "v1.37.0+substorm", GoVersion: goruntime.Version(),
		Compiler: goruntime.Compiler, Platform: goruntime.GOOS + "/" + goruntime.GOARCH}
}

// ServeHTTP answers clients with the token; others learn whether the server is up.
func (s *Server) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	defer func() {
		if cause := recover(); cause != nil && cause != http.ErrAbortHandler { //nolint:errorlint,err113 // a value, as in net/http
			s.cfg.Log.Error("a request panicked", "method", req.Method, "path", req.URL.Path, "panic", cause, "stack", string(debug.Stack()))
			panic(http.ErrAbortHandler)
		}
	}()
	switch req.URL.Path {
	case "/healthz", "/livez", "/readyz":
		s.serveHealth(w)
		return
	}
	token, bearer := strings.CutPrefix(req.Header.Get("Authorization"), "Bearer ")
	if !bearer || subtle.ConstantTimeCompare([]byte(token), []byte(s.access.token)) != 1 {
		fail(w, apierrors.NewUnauthorized("Unauthorized"))
		return
	}
	switch path := strings.TrimSuffix(req.URL.Path, "/"); {
	case path == "/version":
		writeJSON(w, "application/json", serverVersion())
	case path == "/api" || path == "/apis":
		s.serveGroups(w, req)
	case path == "/openapi/v2":
		s.serveOpenAPIv2(w)
	case path == "/openapi/v3" || strings.HasPrefix(path, "/openapi/v3/"):
		s.serveOpenAPI(w, req)
	default:
		s.serveAPI(w, req)
	}
}

func (s *Server) serveHealth(w http.ResponseWriter) {
	if err := s.store.changes.err(); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_, _ = fmt.Fprint(w, "ok")
}

// serveAPI answers for a resource, or tells what resources a group has.
func (s *Server) serveAPI(w http.ResponseWriter, req *http.Request) {
	info, err := requests.NewRequestInfo(req)
	if err != nil {
		fail(w, apierrors.NewBadRequest(err.Error()))
		return
	}
	if !info.IsResourceRequest {
		parts := strings.Split(strings.Trim(req.URL.Path, "/"), "/")
		switch {
		case len(parts) == 2 && parts[0] == "api" && s.serveResources(w, schema.GroupVersion{Version: parts[1]}):
		case len(parts) == 2 && parts[0] == "apis" && s.serveGroup(w, parts[1]):
		case len(parts) == 3 && parts[0] == "apis" && s.serveResources(w, schema.GroupVersion{Group: parts[1], Version: parts[2]}):
		default:
			http.NotFound(w, req)
		}
		return
	}
	gvr := schema.GroupVersionResource{Group: info.APIGroup, Version: info.APIVersion, Resource: info.Resource}
	k := s.byResource[gvr]
	if k == nil || !k.inScope(info) {
		http.Error(w, "404 page not found", http.StatusNotFound)
		return
	}
	handle := k.handler(info.Verb, info.Subresource)
	if handle == nil && info.Subresource != "" {
		fail(w, apierrors.NewNotFound(gvr.GroupResource(), info.Name))
		return
	}
	if handle == nil {
		fail(w, apierrors.NewMethodNotSupported(gvr.GroupResource(), info.Verb))
		return
	}
	ctx := request.WithRequestInfo(req.Context(), info)
	ctx = request.WithUser(ctx, administrator)
	ctx = request.WithReceivedTimestamp(ctx, time.Now())
	ctx = audit.WithAuditContext(ctx)                                                                   // the handlers need one
	_ = audit.AuditContextFrom(ctx).Init(audit.RequestAuditConfig{Level: auditinternal.LevelNone}, nil) // errs a second time only
	ctx = warning.WithWarningRecorder(ctx, &warnings{header: w.Header()})
	handle(w, req.WithContext(ctx))
}

// inScope: what is in namespaces is listed and watched across them, everything else names one.
func (k *kind) inScope(info *request.RequestInfo) bool {
	if k.plural == "namespaces" && k.gvk.Group == "" {
		return true // a Namespace's own path names it as the namespace
	}
	if !k.namespaced {
		return info.Namespace == ""
	}
	return info.Namespace != "" || info.Verb == "list" || info.Verb == "watch"
}

// warnings are sent in headers, each once.
type warnings struct {
	mu     sync.Mutex
	header http.Header
	sent   map[string]bool
}

func (r *warnings) AddWarning(agent, text string) {
	if agent == "" {
		agent = "-"
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	value, err := utilnet.NewWarningHeader(299, agent, text)
	if err != nil || r.sent[text] {
		return
	}
	if r.sent == nil {
		r.sent = map[string]bool{}
	}
	r.sent[text] = true
	r.header.Add("Warning", value)
}

func fail(w http.ResponseWriter, err *apierrors.StatusError) {
	status := err.ErrStatus
	status.Kind, status.APIVersion = "Status", "v1"
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(status.Code))
	_ = json.NewEncoder(w).Encode(status)
}

func writeJSON(w http.ResponseWriter, contentType string, value any) {
	w.Header().Set("Content-Type", contentType)
	_ = json.NewEncoder(w).Encode(value) // the client is gone
}
