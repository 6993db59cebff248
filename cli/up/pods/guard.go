// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/substorm/substorm/internal/retry"
)

const (
	// maxSilence is as long as the liveness probe of a pod takes on a cluster.
	maxSilence = time.Minute
	// guardProbes are those within the silence.
	guardProbes = 6
)

// silentError ends a program that answered and does so no more.
type silentError struct{ silence time.Duration }

// Error implements error.
func (e *silentError) Error() string {
	return fmt.Sprintf("it was ended, since it answered nothing at /healthz for %v: it hangs, or its process was stopped", e.silence)
}

// guard ends a program that runs in a process of its own and hangs, as a liveness probe does. One that has not answered yet still begins.
func (p *process) guard(ctx context.Context, health string, end context.CancelCauseFunc) {
	client := &http.Client{Timeout: p.silence / guardProbes, Transport: &http.Transport{DisableKeepAlives: true}}
	var answered time.Time
	for retry.Sleep(ctx, p.silence/guardProbes) {
		resp, err := client.Get("http://" + health + "/healthz")
		if err == nil {
			_ = resp.Body.Close()
		}
		switch {
		case err == nil && resp.StatusCode == http.StatusOK:
			answered = time.Now()
		case !answered.IsZero() && time.Since(answered) >= p.silence:
			end(&silentError{p.silence})
			return
		}
	}
}
