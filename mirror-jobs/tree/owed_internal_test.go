// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/gateway"
	"github.com/substorm/substorm/mirror-jobs/push"
)

// A file that a gateway refused since its name has other bytes is the reason of the run, also behind another that did not come.
func TestNameConflict(t *testing.T) {
	t.Parallel()
	r := &run{}
	r.owe("a/0.txt", errors.New("permission denied"))
	if err := r.leaves(); !errors.Is(err, push.ErrOwed) || !strings.Contains(err.Error(), `"a/0.txt": permission denied`) || strings.Contains(err.Error(), "to the partner") {
		t.Errorf("%v", err)
	}
	r.owe("a/1.txt", &gateway.RefusedError{Status: http.StatusConflict, Detail: "a/1.txt: set archive.versions: Keep", Cause: wire.CauseNameConflict})
	err := r.leaves()
	var p *push.Problem
	if !errors.As(err, &p) || p.Reason != wire.MirrorReasonNameConflict || !p.Answered || !errors.Is(err, push.ErrOwed) {
		t.Errorf("%v", err)
	}
	if !strings.Contains(err.Error(), `2 files, as "a/1.txt"`) || !strings.Contains(err.Error(), "archive.versions: Keep") {
		t.Errorf("%v", err)
	}
}
