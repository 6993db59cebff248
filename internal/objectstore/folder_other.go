// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package objectstore

import (
	"fmt"
	"net/url"
)

func openFolder(_ *url.URL, cfg Config) (Store, error) {
	return nil, fmt.Errorf("object store endpoint %q: a folder is an object store on Linux only", cfg.Endpoint)
}
