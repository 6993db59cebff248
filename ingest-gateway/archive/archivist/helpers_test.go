// SPDX-License-Identifier: Apache-2.0

package archivist

import (
	"strings"
	"testing"

	"github.com/substorm/substorm/internal/objectstore"
)

func put(t *testing.T, l *lab, key, body string) {
	t.Helper()
	if err := l.store.Put(t.Context(), key, strings.NewReader(body), int64(len(body)), objectstore.PutOptions{}); err != nil {
		t.Fatal(err)
	}
}
