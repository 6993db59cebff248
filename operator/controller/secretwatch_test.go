// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"io"
	"log/slog"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestWatchThatFails: a watch is relied on once it has begun, no matter how often it ends and begins again, as each does after some
// minutes, and no longer for a while after it has failed.
func TestWatchThatFails(t *testing.T) {
	w := &secretWatch{log: slog.New(slog.DiscardHandler)}
	if w.isReliable() {
		t.Error("it hears before it has begun")
	}
	w.synced.Store(true)
	for _, usual := range []error{io.EOF, fmt.Errorf("watch: %w", io.EOF), apierrors.NewResourceExpired("too old")} {
		if w.fails(t.Context(), nil, usual); !w.isReliable() {
			t.Errorf("after %v: it hears nothing", usual)
		}
	}
	if w.fails(t.Context(), nil, apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "", nil)); w.isReliable() {
		t.Error("the right was taken away, and it hears still")
	}
}
