// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"net/http"

	openapiv2 "github.com/google/gnostic-models/openapiv2"
	"google.golang.org/protobuf/proto"
)

// protobufMediaType is how kubectl asks for OpenAPI version 2.
const protobufMediaType = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"

// serveOpenAPIv2 answers with a document without definitions. kubectl asks for it where OpenAPI version 3 does not say that the server checks
// fields: for a List, and for a kind that there is not. It checks nothing by itself then, and sends each object to the server, which does.
func (s *Server) serveOpenAPIv2(w http.ResponseWriter) {
	body, err := proto.Marshal(&openapiv2.Document{Swagger: "2.0", Info: &openapiv2.Info{Title: "Substorm", Version: serverVersion().GitVersion},
		Paths: &openapiv2.Paths{}})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", protobufMediaType)
	_, _ = w.Write(body)
}
