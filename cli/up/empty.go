// SPDX-License-Identifier: Apache-2.0

//go:build linux

package up

import (
	_ "embed"
	"fmt"

	"github.com/substorm/substorm/cli/up/manifests"
)

// emptyManifests declare a Site without instruments, whose pool quarantines what arrives.
//
//go:embed empty.yaml
var emptyManifests []byte

// emptySite is what runs where no manifests are named.
func emptySite(namespace string) ([]*manifests.Object, error) {
	all, err := manifests.Up.Parse("(built in)", emptyManifests, namespace)
	if err != nil {
		return nil, fmt.Errorf("the built-in Site of substorm up: %w", err)
	}
	return all, nil
}

// codeOf is the code of the Site that objects declare, and "" where they declare none.
func codeOf(objects []*manifests.Object) string {
	if site := siteOf(objects); site != nil {
		spec, _ := site.Object["spec"].(map[string]any)
		code, _ := spec["code"].(string)
		return code
	}
	return ""
}

func siteOf(objects []*manifests.Object) *manifests.Object {
	for _, o := range objects {
		if o.GetKind() == "Site" {
			return o
		}
	}
	return nil
}
