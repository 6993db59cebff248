// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/substorm/substorm/operator/api/v1alpha1"
)

// mirrorPlace is where the copies of a push lie at the other side, as a path; empty of a pull.
func mirrorPlace(spec *v1alpha1.MirrorPartnerSpec) string {
	var server string
	var folder []string
	switch {
	case spec.Direction != v1alpha1.MirrorPush:
		return ""
	case spec.S3 != nil:
		server, folder = strings.TrimRight(spec.S3.Endpoint, "/"), []string{spec.S3.Bucket, string(spec.S3.Prefix)}
	case spec.Rsync != nil && spec.Rsync.Daemon != nil:
		server, folder = "rsync://"+spec.Rsync.Daemon.Address, []string{spec.Rsync.Daemon.Module, string(spec.Rsync.Daemon.Path)}
	case spec.Rsync != nil && spec.Rsync.SSH != nil:
		ssh := spec.Rsync.SSH
		server, folder = fmt.Sprintf("ssh://%s:%d", ssh.Host, cmp.Or(ssh.Port, 22)), []string{ssh.Path}
		if !strings.HasPrefix(ssh.Path, "/") {
			folder = []string{"~" + ssh.User, ssh.Path}
		}
	default:
		return ""
	}
	place := strings.ToLower(server)
	for _, part := range strings.Split(strings.Join(folder, "/"), "/") {
		if part != "" && part != "." {
			place += "/" + part
		}
	}
	return place
}

// placesTaken are, by name, the older MirrorPartners at whose places younger ones would push: within a folder of another's copies no run
// can tell whose a file is, and one removes what the other wrote.
func placesTaken(mirrors []v1alpha1.MirrorPartner) map[string]*v1alpha1.MirrorPartner {
	all, taken := byAge(mirrors), map[string]*v1alpha1.MirrorPartner{}
	for i, m := range all {
		place := mirrorPlace(&m.Spec)
		if place == "" {
			continue
		}
		for _, older := range all[:i] {
			if other := mirrorPlace(&older.Spec); other != "" && taken[older.Name] == nil && (strings.HasPrefix(place+"/", other+"/") || strings.HasPrefix(other+"/", place+"/")) {
				taken[m.Name] = older
				break
			}
		}
	}
	return taken
}

// originsTaken are, by name, the older MirrorPartners that pull from the Sites that younger ones would pull from: an instrument there is
// one here, and runs of both would write the same entries and objects.
func originsTaken(mirrors []v1alpha1.MirrorPartner) map[string]*v1alpha1.MirrorPartner {
	first, taken := map[string]*v1alpha1.MirrorPartner{}, map[string]*v1alpha1.MirrorPartner{}
	for _, m := range byAge(mirrors) {
		origin := originOf(m.Spec.HTTPS)
		if origin == "" {
			continue
		}
		if older := first[origin]; older != nil {
			taken[m.Name] = older
		} else {
			first[origin] = m
		}
	}
	return taken
}

func byAge(mirrors []v1alpha1.MirrorPartner) []*v1alpha1.MirrorPartner {
	all := make([]*v1alpha1.MirrorPartner, len(mirrors))
	for i := range mirrors {
		all[i] = &mirrors[i]
	}
	slices.SortFunc(all, func(a, b *v1alpha1.MirrorPartner) int { return olderFirst(a, b) })
	return all
}

func mirrorsOriginIsTaken(in mirrorApplication) (Finding, bool) {
	if in.pulled == nil {
		return Finding{}, false
	}
	return bad(v1alpha1.ReasonConflict, fmt.Sprintf(
		"the older MirrorPartner %q pulls from Site %q already: give it all instruments that you want of that Site, and delete this one",
		in.pulled.Name, originOf(in.mirror.Spec.HTTPS))), true
}

func mirrorsPlaceIsTaken(in mirrorApplication) (Finding, bool) {
	if in.taken == nil {
		return Finding{}, false
	}
	return bad(v1alpha1.ReasonConflict, fmt.Sprintf(
		"its copies would lie at %q, and those of the older MirrorPartner %q at %q: give each a folder of its own", mirrorPlace(&in.mirror.Spec), in.taken.Name, mirrorPlace(&in.taken.Spec))), true
}

// mirrorPullsOwn looks for a pull of the Site's own archive, whose objects nobody could tell from those that the Site received.
func mirrorPullsOwn(in mirrorApplication) (Finding, bool) {
	h := in.mirror.Spec.HTTPS
	return bad(v1alpha1.ReasonConflict, fmt.Sprintf("spec.https.origin is %q, the code of Site %q itself: name the code of the Site there", originOf(h), in.site.Name)),
		h != nil && h.Origin != "" && h.Origin == in.site.Spec.Code
}

func originOf(h *v1alpha1.MirrorHTTPS) string {
	if h == nil {
		return ""
	}
	return h.Origin
}
