// SPDX-License-Identifier: Apache-2.0

package accept

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/finding"
	"github.com/substorm/substorm/operator/plan/workload"
)

// mirrorPlace is where the copies of a push lie at the other side, as a path; empty of a pull.
func mirrorPlace(spec *v1alpha1.MirrorPartnerSpec) string {
	var server string
	var folder []string
	switch {
	case spec.Direction != v1alpha1.MirrorPush:
		return ""
	case spec.S3 != nil:
		server, folder = s3Server(spec.S3.Endpoint), []string{spec.S3.Bucket, string(spec.S3.Prefix)}
	case spec.Rsync != nil && spec.Rsync.Daemon != nil:
		server, folder = serverAt("rsync", spec.Rsync.Daemon.Address), []string{spec.Rsync.Daemon.Module, string(spec.Rsync.Daemon.Path)}
	case spec.Rsync != nil && spec.Rsync.SSH != nil:
		ssh := spec.Rsync.SSH
		server, folder = serverAt("ssh", net.JoinHostPort(ssh.Host, strconv.Itoa(int(cmp.Or(ssh.Port, 22))))), sshFolder(ssh)
	default:
		return ""
	}
	place := server
	for _, part := range strings.Split(strings.Join(folder, "/"), "/") {
		if part != "" && part != "." {
			place += "/" + part
		}
	}
	return place
}

// sshFolder is the folder of a host, however it is written: a path that is not absolute is in the home of a user there.
func sshFolder(ssh *v1alpha1.MirrorRsyncSSH) []string {
	home, below, _ := strings.Cut(ssh.Path, "/")
	switch {
	case home == "":
		return []string{ssh.Path}
	case !strings.HasPrefix(home, "~"):
		return []string{"~" + ssh.User, ssh.Path}
	default:
		return []string{"~" + cmp.Or(home[1:], ssh.User), below}
	}
}

// s3Server is the server of an endpoint, with its port also where that is the scheme's own.
func s3Server(endpoint string) string {
	u, err := url.Parse(endpoint)
	if err != nil { // the API server takes none such
		return strings.ToLower(strings.TrimRight(endpoint, "/"))
	}
	return serverAt(u.Scheme, net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme])))
}

// serverAt writes a server, given as host:port, the same way however host and port are written.
func serverAt(scheme, address string) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return strings.ToLower(scheme + "://" + address)
	}
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	if ip, err := netip.ParseAddr(host); err == nil {
		host = ip.String()
	}
	if n, err := strconv.Atoi(port); err == nil {
		port = strconv.Itoa(n)
	}
	return scheme + "://" + net.JoinHostPort(host, port)
}

// mirrorPlaces are the places of MirrorPartners that have theirs.
type mirrorPlaces struct {
	mirrors []*v1alpha1.MirrorPartner
	// at are the indexes in mirrors of the partners with these places, and within those of the oldest ones within these folders.
	at, within map[string]int
}

// placesTaken are, by name, the older MirrorPartners at whose places younger ones would push: within a folder of another's copies no run
// can know whose a file is, and one removes what the other wrote. Names are unique, since all are of one namespace.
func placesTaken(mirrors []*v1alpha1.MirrorPartner) map[string]*v1alpha1.MirrorPartner {
	all := slices.SortedFunc(slices.Values(mirrors), func(a, b *v1alpha1.MirrorPartner) int { return OlderFirst(a, b) })
	places, taken := mirrorPlaces{mirrors: all, at: map[string]int{}, within: map[string]int{}}, map[string]*v1alpha1.MirrorPartner{}
	for i, m := range all {
		place := mirrorPlace(&m.Spec)
		if place == "" {
			continue
		}
		if older := places.overlapping(place); older != nil {
			taken[m.Name] = older
		} else {
			places.add(place, i)
		}
	}
	return taken
}

// overlapping is the oldest MirrorPartner whose place is this one, holds it or lies within it; nil for none.
func (p *mirrorPlaces) overlapping(place string) *v1alpha1.MirrorPartner {
	oldest := len(p.mirrors)
	if i, is := p.within[place]; is {
		oldest = i
	}
	for _, folder := range foldersOf(place) {
		if i, is := p.at[folder]; is {
			oldest = min(oldest, i)
		}
	}
	if oldest == len(p.mirrors) {
		return nil
	}
	return p.mirrors[oldest]
}

func (p *mirrorPlaces) add(place string, i int) {
	p.at[place] = i
	for _, folder := range foldersOf(place) {
		if _, is := p.within[folder]; !is { // those that came before are older
			p.within[folder] = i
		}
	}
}

// foldersOf are a place and all folders that hold it.
func foldersOf(place string) (all []string) {
	for i, r := range place {
		if r == '/' {
			all = append(all, place[:i])
		}
	}
	return append(all, place)
}

// originsTaken are, by name, the older MirrorPartners that pull from the Sites that younger ones would pull from: an instrument there is
// one here, and runs of both would write the same entries and objects.
func originsTaken(mirrors []v1alpha1.MirrorPartner) map[string]*v1alpha1.MirrorPartner {
	first, taken := map[string]*v1alpha1.MirrorPartner{}, map[string]*v1alpha1.MirrorPartner{}
	for _, m := range byAge(mirrors) {
		origin := workload.OriginOf(m.Spec.HTTPS)
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
	all := pointers(mirrors)
	slices.SortFunc(all, func(a, b *v1alpha1.MirrorPartner) int { return OlderFirst(a, b) })
	return all
}

func pointers(mirrors []v1alpha1.MirrorPartner) []*v1alpha1.MirrorPartner {
	all := make([]*v1alpha1.MirrorPartner, len(mirrors))
	for i := range mirrors {
		all[i] = &mirrors[i]
	}
	return all
}

func mirrorsOriginIsTaken(in mirrorApplication) (finding.Finding, bool) {
	if in.pulled == nil {
		return finding.Finding{}, false
	}
	return finding.Bad(v1alpha1.ReasonConflict, fmt.Sprintf(
		"the older MirrorPartner %q pulls from Site %q already: give it all instruments that you want of that Site, and delete this one",
		in.pulled.Name, workload.OriginOf(in.mirror.Spec.HTTPS))), true
}

func mirrorsPlaceIsTaken(in mirrorApplication) (finding.Finding, bool) {
	if in.taken == nil {
		return finding.Finding{}, false
	}
	site := ""
	if in.taken.Spec.SiteRef != in.mirror.Spec.SiteRef {
		site = fmt.Sprintf(" of Site %q", in.taken.Spec.SiteRef.Name)
	}
	return finding.Bad(v1alpha1.ReasonConflict, fmt.Sprintf("its copies would lie at %q, and those of the older MirrorPartner %q%s at %q: give each a folder of its own",
		mirrorPlace(&in.mirror.Spec), in.taken.Name, site, mirrorPlace(&in.taken.Spec))), true
}

// mirrorPullsOwn looks for a pull of the Site's own archive, whose objects could not be distinguished from those that the Site received.
func mirrorPullsOwn(in mirrorApplication) (finding.Finding, bool) {
	h := in.mirror.Spec.HTTPS
	return finding.Bad(v1alpha1.ReasonConflict, fmt.Sprintf("spec.https.origin is %q, the code of Site %q itself: name the code of the Site there", workload.OriginOf(h), in.site.Name)),
		h != nil && h.Origin != "" && h.Origin == in.site.Spec.Code
}
