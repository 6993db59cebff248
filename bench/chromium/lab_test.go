// SPDX-License-Identifier: Apache-2.0

// Package chromium_test tries in Chromium what the feed server serves to browsers.
package chromium_test

import (
	"bytes"
	"image"
	"image/png"
	"os"
	"os/exec"
	"testing"

	"github.com/substorm/substorm/bench/internal/browser"
	"github.com/substorm/substorm/feed-server/archive/archivetest"
	"github.com/substorm/substorm/feed-server/latest"
	"github.com/substorm/substorm/internal/wire"
)

// newLab returns an archive that is served together with its newest objects.
func newLab(t *testing.T) *archivetest.Lab {
	t.Helper()
	l := archivetest.New(t)
	l.Open(latest.New(latest.Config{Catalog: l.Catalog, AccessCheck: l.AccessCheck, Archive: l.Archive}).Endpoints())
	return l
}

func typed(mediaType string) func(*wire.Record) {
	return func(r *wire.Record) { r.MediaType = mediaType }
}

// picture is so many pixels wide.
func picture(t *testing.T, width int) string {
	t.Helper()
	var b bytes.Buffer
	if err := png.Encode(&b, image.NewGray(image.Rect(0, 0, width, 1))); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// start starts Chromium. Without one the test is skipped, but fails in CI.
func start(t *testing.T) *browser.Browser {
	t.Helper()
	if _, err := exec.LookPath("chromium"); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("no Chromium is installed: apt-get install chromium")
		}
		t.Skip("no Chromium is installed: apt-get install chromium")
	}
	b, err := browser.Start(t)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
