// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/substorm/substorm/operator/api/v1alpha1"
)

// An address that is declared is in all links. Where none is, and one process runs all, links name what a request was sent to, and
// notifications, which no request asks for, where the feed server listens.
func TestAddressOfLinks(t *testing.T) {
	t.Parallel()
	own := &Standalone{URL: func(*v1alpha1.FeedServer) string { return "http://127.0.0.1:8080" }}
	for declared, want := range map[string]string{"https://archive.example": "--base-url=https://archive.example", "": "--notification-url=http://127.0.0.1:8080"} {
		server := &v1alpha1.FeedServer{ObjectMeta: metav1.ObjectMeta{Name: "north"}, Spec: v1alpha1.FeedServerSpec{URL: declared}}
		own.Apply(server)
		args := FeedServer{SiteProgram: SiteProgram{Site: &v1alpha1.Site{}, asked: &v1alpha1.PodTemplate{}}, Server: server, Addressed: server}.arguments()
		based := slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, "--base-url=") })
		if !slices.Contains(args, want) || based != (declared != "") {
			t.Errorf("declared %q: %q", declared, args)
		}
	}
}
