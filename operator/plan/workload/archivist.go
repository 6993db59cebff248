// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/finding"
)

// ArchivistProgram is the name of the program, and of its container.
const ArchivistProgram = "archivist"

// archivistStop is how long an archivist that stops may take to release its lease, in seconds.
const archivistStop = 30

// defaultArchivistScratch is how much is written at a time: a segment, and the sorted lists of a day's objects.
var defaultArchivistScratch = resource.MustParse("20Gi")

// Archivist is the SiteProgram that each Site has.
type Archivist struct{ SiteProgram }

// ArchivistName is the name of all objects of a Site's archivist: a Site's code is short
// enough for it.
func ArchivistName(site *v1alpha1.Site) string { return site.Spec.Code + "-" + ArchivistProgram }

// ArchivistOf is the SiteProgram of a Site's archivist.
func ArchivistOf(site *v1alpha1.Site) SiteProgram {
	return SiteProgram{Site: site, Program: ArchivistProgram, Owner: Owner{"Site", site.Name, site.UID},
		name: ArchivistName(site), inbox: InboxPrefix(ArchivistName(site)), asked: &site.Spec.Archivist.PodTemplate}
}

// ArchivistSecrets are the Secrets that it mounts.
func ArchivistSecrets(site *v1alpha1.Site) []SecretNeed { return backendSecrets(site) }

// ArchivistReplicas: one works, the other waits for its lease. In one process both would end together.
func ArchivistReplicas(site *v1alpha1.Site) int32 {
	if finding.IsStandalone(site) {
		return 1
	}
	return 2
}

// Objects are the Kubernetes objects but the Secret with credentials, in the order
// in which to apply them. The Deployment is not among them while a Secret that its
// pods mount is missing.
func (a Archivist) Objects() []Object {
	name := a.Name()
	objects := []Object{
		{"ServiceAccount", name, a.serviceAccount()},
		{"PodDisruptionBudget", name, a.disruptionBudget()},
	}
	if _, missing := a.Secrets.Missing(ArchivistSecrets(a.Site)); missing {
		return objects
	}
	return append(objects, Object{"Deployment", name, a.deployment(ArchivistReplicas(a.Site), a.podSpec(archivistStop, a.mounts(), a.container()).WithVolumes(a.scratch()))})
}

func (a Archivist) mounts() []secretMount {
	return a.backendMounts(a.Site.Spec.ObjectStore.CredentialsSecretRef.Name)
}

func (a Archivist) scratch() *coreac.VolumeApplyConfiguration {
	size := defaultArchivistScratch
	if asked := a.Site.Spec.Archivist.ScratchSize; asked != nil {
		size = *asked
	}
	return coreac.Volume().WithName("scratch").WithEmptyDir(coreac.EmptyDirVolumeSource().WithSizeLimit(size))
}

func (a Archivist) container() *coreac.ContainerApplyConfiguration {
	return a.SiteProgram.container(a.arguments(), a.mounts()).
		WithVolumeMounts(coreac.VolumeMount().WithName("scratch").WithMountPath(dataDir))
}

// arguments are the flags of the program, which has the defaults of fields that the Site omits.
func (a Archivist) arguments() []string {
	spec, js := &a.Site.Spec.Archivist, &a.Site.Spec.JetStream
	args := append([]string{
		"--site=" + a.Site.Spec.Code,
		"--pod=$(POD_NAME)",
		"--scratch-dir=" + dataDir,
		"--listen-http=:" + strconv.Itoa(metricsPort),
		"--observation-retention=" + js.Observations.Retention.Duration.String(),
		"--notice-retention=" + js.Notices.Retention.Duration.String(),
	}, a.backendArguments()...)
	for _, d := range []struct {
		flag string
		is   *metav1.Duration
	}{{"--part-interval=", spec.PartInterval}, {"--compact-after=", spec.CompactAfter}, {"--compact-grace=", spec.CompactGrace}} {
		if d.is != nil {
			args = append(args, d.flag+d.is.Round(time.Millisecond).String())
		}
	}
	if rate := spec.ScrubBytesPerSecond; rate != nil {
		bytes := rate.Value()
		if bytes == 0 { // the program's default is another rate
			bytes = -1
		}
		args = append(args, "--scrub-rate="+strconv.FormatInt(bytes, 10))
	}
	if networks := spec.ForwardNetworks; len(networks) > 0 {
		args = append(args, "--forward-networks="+strings.Join(networks, ","))
	}
	return args
}
