// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/substorm/substorm/operator/api/v1alpha1"
)

// An address that is declared is in all links. If none is, and one process runs all, links name the address that a request was
// sent to, and notifications, which no request asks for, name the address where the feed server listens.
func TestAddressOfLinks(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{"https://archive.example": "--base-url=https://archive.example", "http://127.0.0.1:8080": "--notification-url=http://127.0.0.1:8080"} {
		declared := strings.HasPrefix(want, "--base-url=")
		server := &v1alpha1.FeedServer{ObjectMeta: metav1.ObjectMeta{Name: "north"}, Spec: v1alpha1.FeedServerSpec{URL: url}}
		if !declared {
			metav1.SetMetaDataAnnotation(&server.ObjectMeta, AnnotationOwnURL, "true")
		}
		args := FeedServer{SiteProgram: SiteProgram{Site: &v1alpha1.Site{}, asked: &v1alpha1.PodTemplate{}}, Server: server, Addressed: server}.arguments()
		based := slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, "--base-url=") })
		if !slices.Contains(args, want) || based != declared {
			t.Errorf("%s, declared: %t: %q", url, declared, args)
		}
	}
}
