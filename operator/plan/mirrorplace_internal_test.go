// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/substorm/substorm/operator/api/v1alpha1"
)

// TestPlacesTaken: of any MirrorPartners the same ones are refused, for the same older ones, as by a comparison of each with each.
func TestPlacesTaken(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var mirrors []*v1alpha1.MirrorPartner
		for i := range 30 {
			m := &v1alpha1.MirrorPartner{}
			m.Name, m.CreationTimestamp = fmt.Sprintf("p-%d", i), metav1.NewTime(time.Unix(random.Int64N(20), 0))
			folders := make([]string, random.IntN(4))
			for k := range folders {
				folders[k] = []string{"a", "b", "ab"}[random.IntN(3)]
			}
			m.Spec.Direction, m.Spec.S3 = v1alpha1.MirrorPush, &v1alpha1.MirrorS3{Endpoint: "https://s3.example.org", Bucket: fmt.Sprintf("bucket-%d", random.IntN(3)),
				Prefix: v1alpha1.MirrorFolder(strings.Join(folders, "/"))}
			mirrors = append(mirrors, m)
		}
		got := placesTaken(mirrors)
		for _, m := range mirrors {
			if older := oldestOverlapping(m, mirrors, got); got[m.Name] != older {
				t.Fatalf("%s at %s: %v is in its way, not %v", m.Name, mirrorPlace(&m.Spec), nameOf(older), nameOf(got[m.Name]))
			}
		}
	}
}

func oldestOverlapping(m *v1alpha1.MirrorPartner, all []*v1alpha1.MirrorPartner, taken map[string]*v1alpha1.MirrorPartner) (found *v1alpha1.MirrorPartner) {
	for _, other := range all {
		place, there := mirrorPlace(&m.Spec)+"/", mirrorPlace(&other.Spec)+"/"
		overlap := strings.HasPrefix(place, there) || strings.HasPrefix(there, place)
		if overlap && olderFirst(other, m) < 0 && taken[other.Name] == nil && (found == nil || olderFirst(other, found) < 0) {
			found = other
		}
	}
	return found
}

func nameOf(m *v1alpha1.MirrorPartner) string {
	if m == nil {
		return "nobody"
	}
	return m.Name
}
