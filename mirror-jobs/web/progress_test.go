// SPDX-License-Identifier: Apache-2.0

package web_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/substorm/substorm/mirror-jobs/plan"
	"github.com/substorm/substorm/mirror-jobs/push"
	"github.com/substorm/substorm/mirror-jobs/tree"
)

// Index pages tell no sizes: what is owed is known once a file comes, and its bytes count while it does.
func TestProgress(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("0123456789abcdef", 1<<20)
	half := len(large) / 2
	a := newArchive(t, nil)
	progress := &push.Progress{}
	a.failing(func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/large.txt" {
			return false
		}
		w.Header().Set("Content-Length", strconv.Itoa(len(large)))
		_, _ = w.Write([]byte(large[:half]))
		w.(http.Flusher).Flush()
		for progress.Report().Bytes < int64(half) {
			select {
			case <-r.Context().Done():
				return true
			case <-time.After(time.Millisecond):
			}
		}
		_, _ = w.Write([]byte(large[half:]))
		return true
	})
	progress.Owe(0)
	moving := progress.Begin(0)
	wanted := []tree.Wanted{{File: plan.File{Path: "large.txt", Size: -1}, Moving: moving}}
	err := source(t, a.URL, "").Fetch(t.Context(), wanted, func(_ int, got tree.Got) error { return got.Err })
	if err != nil {
		t.Fatal(err)
	}
	moving.End(true)
	progress.Listed()
	if r, owed := progress.Report(), progress.Owed(); r.Objects != 1 || r.Bytes != int64(len(large)) || r.TotalBytes != r.Bytes || owed.Bytes != 0 {
		t.Errorf("%+v, %+v", r, owed)
	}
}
