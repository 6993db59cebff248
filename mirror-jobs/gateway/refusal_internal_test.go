// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"net/http"
	"testing"

	"github.com/substorm/substorm/internal/problem"
	"github.com/substorm/substorm/internal/wire"
)

// A refusal has the cause that the gateway counts it under.
func TestRefusalCause(t *testing.T) {
	t.Parallel()
	answer := &http.Response{StatusCode: http.StatusConflict, Header: http.Header{"Content-Type": {problem.ContentType}}}
	e := refusal(answer, []byte(`{"type":"about:blank","title":"Conflict","status":409,"detail":"a.jpg: choose another name","cause":"NameConflict"}`))
	if e.Cause != wire.CauseNameConflict || e.Detail != "a.jpg: choose another name" || e.mayPass {
		t.Errorf("%+v", e)
	}
	if e := refusal(answer, []byte("no document")); e.Cause != "" || e.Detail != "no document" {
		t.Errorf("%+v", e)
	}
}
