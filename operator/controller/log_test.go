// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"strings"
	"sync"
	"testing"
)

// testLog writes the operator's log into the test's, until the test is over:
// connections that were closed say so in their own time.
type testLog struct {
	t    *testing.T
	mu   sync.Mutex
	over bool
}

func newTestLog(t *testing.T) *testLog {
	l := &testLog{t: t}
	t.Cleanup(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.over = true
	})
	return l
}

func (l *testLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.over {
		l.t.Log(strings.TrimSpace(string(p)))
	}
	return len(p), nil
}
