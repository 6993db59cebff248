// SPDX-License-Identifier: Apache-2.0

package retry

import (
	"context"
	"testing"
	"time"
)

func TestSleep(t *testing.T) {
	if !Sleep(t.Context(), time.Millisecond) {
		t.Error("Sleep says that a context ended that goes on")
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if Sleep(ended, time.Hour) {
		t.Error("Sleep says that an hour passed, and the context had ended")
	}
}
