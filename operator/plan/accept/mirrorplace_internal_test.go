// SPDX-License-Identifier: Apache-2.0

package accept

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

// TestSpellings: a place is one however host, port and folder are written.
func TestSpellings(t *testing.T) {
	t.Parallel()
	s3 := func(endpoint, prefix string) v1alpha1.MirrorPartnerSpec {
		return v1alpha1.MirrorPartnerSpec{S3: &v1alpha1.MirrorS3{Endpoint: endpoint, Bucket: "aurora", Prefix: v1alpha1.MirrorFolder(prefix)}}
	}
	daemon := func(address, path string) v1alpha1.MirrorPartnerSpec {
		return v1alpha1.MirrorPartnerSpec{Rsync: &v1alpha1.MirrorRsync{Daemon: &v1alpha1.MirrorRsyncDaemon{Address: address, Module: "m", Path: v1alpha1.MirrorFolder(path)}}}
	}
	ssh := func(host string, port int32, path string) v1alpha1.MirrorPartnerSpec {
		return v1alpha1.MirrorPartnerSpec{Rsync: &v1alpha1.MirrorRsync{SSH: &v1alpha1.MirrorRsyncSSH{Host: host, Port: port, User: "me", Path: path}}}
	}
	for place, all := range map[string][]v1alpha1.MirrorPartnerSpec{
		"https://s3.example.org:443/aurora/a": {s3("https://s3.example.org", "a"), s3("https://S3.Example.org/", "a"), s3("https://s3.example.org.:443/", "a")},
		"http://[2001:db8::7]:80/aurora":      {s3("http://[2001:DB8::7]", ""), s3("http://[2001:db8:0:0:0:0:0:7]:80", "")},
		"rsync://r.example.org:873/m/a/b":     {daemon("r.example.org:873", "a/b"), daemon("R.example.ORG.:0873", "a//b"), daemon("r.example.org:873", "a/./b/")},
		"ssh://h.example.org:22/data/x":       {ssh("h.example.org", 22, "/data/x"), ssh("H.example.org", 0, "/data//x/"), ssh("h.example.org", 22, "/./data/x")},
		"ssh://h.example.org:22/~me/x":        {ssh("h.example.org", 22, "x"), ssh("h.example.org", 22, "./x/"), ssh("h.example.org", 22, "~/x"), ssh("h.example.org", 22, "~me//x")},
		"ssh://h.example.org:22/~other/x":     {ssh("h.example.org", 22, "~other/x")},
		"ssh://h.example.org:22/~me":          {ssh("h.example.org", 22, "."), ssh("h.example.org", 22, "~")},
	} {
		for _, spec := range all {
			spec.Direction = v1alpha1.MirrorPush
			if got := mirrorPlace(&spec); got != place {
				t.Errorf("%+v %+v is %s, want %s", spec.S3, spec.Rsync, got, place)
			}
		}
	}
}

func oldestOverlapping(m *v1alpha1.MirrorPartner, all []*v1alpha1.MirrorPartner, taken map[string]*v1alpha1.MirrorPartner) (found *v1alpha1.MirrorPartner) {
	for _, other := range all {
		place, there := mirrorPlace(&m.Spec)+"/", mirrorPlace(&other.Spec)+"/"
		overlap := strings.HasPrefix(place, there) || strings.HasPrefix(there, place)
		if overlap && OlderFirst(other, m) < 0 && taken[other.Name] == nil && (found == nil || OlderFirst(other, found) < 0) {
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
