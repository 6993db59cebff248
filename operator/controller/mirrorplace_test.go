// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"fmt"
	"testing"
)

// TestMirrorPartnersOfTwoSitesInOnePlace: the younger one waits, though it is of another Site, until the older one gives up the place.
func TestMirrorPartnersOfTwoSitesInOnePlace(t *testing.T) {
	w := newFeedWorld(t)
	w.applySite("spoke", "spoke")
	w.awaits("Site", "spoke", "JetStreamReachable", "True/Reachable")
	const bucket = `direction: Push, protocol: S3, s3: {endpoint: "https://s3.example.org%s", bucket: aurora, credentialsSecretRef: {name: nmdc}}, continuous: {}`
	w.applyMirror("first", fmt.Sprintf(bucket, ""))
	w.awaits("MirrorPartner", "first", "Accepted", "True/Accepted")
	w.applyMirrorOf("spoke", "second", fmt.Sprintf(bucket, ":443"))
	w.awaits("MirrorPartner", "second", "Accepted", "False/Conflict", `"first" of Site "hub"`)
	w.remove(w.object("MirrorPartner", "first"))
	w.awaits("MirrorPartner", "second", "Accepted", "True/Accepted")
}
