// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"slices"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	appsac "k8s.io/client-go/applyconfigurations/apps/v1"
	batchac "k8s.io/client-go/applyconfigurations/batch/v1"
	coreac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/finding"
)

// MirrorProgram is the name of the program that moves, and of its container.
const MirrorProgram = "mirror-jobs"

const (
	partnerDir = "/etc/substorm/partner"
	// mirrorStop is how long a run that stops may take to leave nothing half done behind, in seconds.
	mirrorStop = 30
	// envRun has the name of a run.
	envRun = "RUN_NAME"
	// LabelTrigger on a Job says what started it; without it, the schedule did.
	LabelTrigger = "substorm.dev/trigger"
)

// defaultMirrorScratch is how much of the node's disk a run may use: objects on their way, and the part of them that rsync sees.
var defaultMirrorScratch = resource.MustParse("20Gi")

// Mirror is the SiteProgram of a MirrorPartner that has a Site.
type Mirror struct {
	SiteProgram
	Partner *v1alpha1.MirrorPartner
}

// MirrorName is the name of all objects of a MirrorPartner but Jobs.
func MirrorName(partner string) string { return partner + "-mirror" }

// MirrorOf is the SiteProgram of a MirrorPartner. The Site is nil where it does not exist: then its name and labels alone are of use.
func MirrorOf(site *v1alpha1.Site, m *v1alpha1.MirrorPartner) SiteProgram {
	s := SiteProgram{Site: site, Program: MirrorProgram, Owner: Owner{"MirrorPartner", m.Name, m.UID}, name: MirrorName(m.Name), asked: &m.Spec.PodTemplate,
		noStore: !MirrorReadsArchive(m)}
	if site != nil {
		s.inbox = MirrorInbox(site, m.Name)
	}
	return s
}

// continuous returns whether one pod follows the announcements or, without a cluster, the schedule.
func (m Mirror) continuous() bool { return MirrorRunsOn(m.Site, m.Partner) == "Deployment" }

// MirrorRunsOn is the kind of the object that has runs begin: a CronJob, or a Deployment where the mirror is continuous. Without a
// cluster nothing starts Jobs, and a program that never ends keeps the schedule itself.
func MirrorRunsOn(site *v1alpha1.Site, m *v1alpha1.MirrorPartner) string {
	if m.Spec.Continuous != nil || site != nil && finding.IsStandalone(site) {
		return "Deployment"
	}
	return "CronJob"
}

// MirrorObjects are the kinds and names of the objects that Objects may return: they are removed when the Site of a MirrorPartner is gone.
func MirrorObjects(partner string) []Object {
	name := MirrorName(partner)
	return []Object{{Kind: "Deployment", Name: name}, {Kind: "CronJob", Name: name}, {Kind: "ServiceAccount", Name: name}}
}

// MirrorLeftovers are the objects that were made for an earlier declaration of a MirrorPartner: a CronJob of one that is continuous now,
// and the other way around.
func MirrorLeftovers(site *v1alpha1.Site, m *v1alpha1.MirrorPartner) []Object {
	is := MirrorRunsOn(site, m)
	return slices.DeleteFunc(MirrorObjects(m.Name), func(o Object) bool { return o.Kind == is || o.Kind == "ServiceAccount" })
}

// Objects are the Kubernetes objects but the Secret with credentials, in the order in which to apply them. Nothing that runs is among
// them while a Secret that its pods mount is missing.
func (m Mirror) Objects() []Object {
	objects := []Object{{"ServiceAccount", m.Name(), m.serviceAccount()}}
	if _, missing := m.Secrets.Missing(mirrorPodSecrets(m.Site, m.Partner)); missing {
		return objects
	}
	if m.continuous() {
		replicas := int32(1)
		if m.Partner.Spec.State == v1alpha1.MirrorSuspended {
			replicas = 0
		}
		d := m.deployment(replicas, m.pod())
		d.Spec.Strategy.WithType("Recreate").RollingUpdate = nil // two would fetch everything twice
		return append(objects, Object{"Deployment", m.Name(), d})
	}
	return append(objects, Object{"CronJob", m.Name(), m.cronJob()})
}

// MirrorHalts returns a suspended MirrorPartner's objects with only the fields that halt them, for whichever of them exist: if the partner
// is not accepted, or lacks a Secret, Objects has none of them. Empty for an active one: halted objects continue once Objects has them.
func MirrorHalts(m *v1alpha1.MirrorPartner) []Object {
	if m.Spec.State != v1alpha1.MirrorSuspended {
		return nil
	}
	name := MirrorName(m.Name)
	return []Object{
		{"Deployment", name, appsac.Deployment(name, m.Namespace).WithSpec(appsac.DeploymentSpec().WithReplicas(0))},
		{"CronJob", name, batchac.CronJob(name, m.Namespace).WithSpec(batchac.CronJobSpec().WithSuspend(true))},
	}
}

func (m Mirror) cronJob() *batchac.CronJobApplyConfiguration {
	s := m.Partner.Spec.Schedule
	spec := batchac.CronJobSpec().
		WithSchedule(s.Cron).
		WithTimeZone(string(s.TimeZone)).
		WithConcurrencyPolicy(batchv1.ConcurrencyPolicy(s.ConcurrencyPolicy)).
		WithSuspend(m.Partner.Spec.State == v1alpha1.MirrorSuspended).
		WithJobTemplate(batchac.JobTemplateSpec().WithLabels(m.labels()).WithSpec(m.job()))
	if s.StartingDeadline != nil {
		spec.WithStartingDeadlineSeconds(int64(s.StartingDeadline.Seconds()))
	}
	if s.SuccessfulRunsHistoryLimit != nil {
		spec.WithSuccessfulJobsHistoryLimit(*s.SuccessfulRunsHistoryLimit)
	}
	if s.FailedRunsHistoryLimit != nil {
		spec.WithFailedJobsHistoryLimit(*s.FailedRunsHistoryLimit)
	}
	return batchac.CronJob(m.Name(), m.Site.Namespace).WithLabels(m.labels()).WithOwnerReferences(m.owner()).WithSpec(spec)
}

// job is one run: it is not begun again when it fails, since the next one resumes it.
func (m Mirror) job() *batchac.JobSpecApplyConfiguration {
	template := coreac.PodTemplateSpec().WithLabels(m.labels()).WithSpec(m.pod().WithRestartPolicy(corev1.RestartPolicyNever))
	if m.Permissions != "" {
		template.WithAnnotations(map[string]string{AnnotationPermissions: m.Permissions})
	}
	return batchac.JobSpec().WithBackoffLimit(0).
		WithTemplate(podRules{asked: m.asked, pull: m.Pull, selector: m.Selector()}.apply(template))
}

func (m Mirror) pod() *coreac.PodSpecApplyConfiguration {
	return m.podSpec(mirrorStop, m.mounts(), m.container()).
		WithVolumes(coreac.Volume().WithName("scratch").WithEmptyDir(coreac.EmptyDirVolumeSource().WithSizeLimit(m.scratch())))
}

// scratch is how much of the node's disk a run may take.
func (m Mirror) scratch() resource.Quantity {
	if asked := m.Partner.Spec.ScratchSize; asked != nil {
		return *asked
	}
	return defaultMirrorScratch
}

func (m Mirror) container() *coreac.ContainerApplyConfiguration {
	run := coreac.EnvVar().WithName(envRun).WithValue(wire.MirrorRunContinuous)
	if !m.continuous() {
		run = podField(envRun, "metadata.labels['"+batchv1.JobNameLabel+"']")
	}
	return m.SiteProgram.container(m.arguments(), m.mounts()).
		WithEnv(run).
		WithVolumeMounts(coreac.VolumeMount().WithName("scratch").WithMountPath(dataDir))
}

// arguments are the flags of the program: the registry has what a run does.
func (m Mirror) arguments() []string {
	scratch := m.scratch()
	args := []string{
		"--site=" + m.Site.Spec.Code,
		"--partner=" + m.Partner.Name,
		"--run=$(" + envRun + ")",
		triggerFlag + m.trigger(),
		"--pod=$(POD_NAME)",
		"--scratch-dir=" + dataDir,
		"--scratch-size=" + strconv.FormatInt(scratch.Value(), 10),
		"--listen-http=:" + strconv.Itoa(metricsPort),
	}
	if len(m.partnerMounts()) > 0 {
		args = append(args, "--credentials-dir="+partnerDir)
	}
	return append(args, m.backendArguments()...)
}

// triggerFlag says what started a run.
const triggerFlag = "--trigger="

func (m Mirror) trigger() string {
	switch {
	case m.Partner.Spec.Continuous != nil:
		return wire.MirrorContinuously
	case m.continuous():
		return wire.MirrorTimetable
	default:
		return wire.MirrorScheduled
	}
}

// mounts are the Secrets of the Site, with the credentials of a reader of the object store where it is read, and those of the partner.
func (m Mirror) mounts() []secretMount {
	return append(m.backendMounts(userOr(&m.Site.Spec.ObjectStore, m.Site.Spec.ObjectStore.ReadCredentialsSecretRef)), m.partnerMounts()...)
}

// partnerMounts are the keys of the Secrets that a MirrorPartner names, in one folder and under the names that wire has for them.
func (m Mirror) partnerMounts() []secretMount {
	needs := mirrorFiles(m.Partner)
	if len(needs) == 0 {
		return nil
	}
	mount := secretMount{volume: "partner", dir: partnerDir}
	for _, need := range needs {
		i := slices.IndexFunc(mount.from, func(s secretKeys) bool { return s.secret == need.secret })
		if i < 0 {
			i = len(mount.from)
			mount.from = append(mount.from, secretKeys{secret: need.secret, as: map[string]string{}})
		}
		mount.from[i].keys = append(mount.from[i].keys, need.key)
		mount.from[i].as[need.key] = need.file
	}
	return []secretMount{mount}
}

// mirrorFile is a key of a Secret that a MirrorPartner names, and the file that movers find it in.
type mirrorFile struct{ field, secret, key, file string }

// mirrorFiles are the files of a MirrorPartner, each once.
func mirrorFiles(m *v1alpha1.MirrorPartner) (all []mirrorFile) {
	key := func(field string, ref *v1alpha1.SecretKeyReference, file string) {
		if ref != nil {
			all = append(all, mirrorFile{field, ref.Name, ref.Key, file})
		}
	}
	tls := func(field string, of *v1alpha1.TLS) {
		for _, need := range TLSSecrets(field, of) {
			for _, k := range need.Keys { // whose names are those of the files
				all = append(all, mirrorFile{need.Field, need.Name, k, k})
			}
		}
	}
	if h := m.Spec.HTTPS; h != nil {
		key("spec.https.tokenSecretKeyRef", h.TokenSecretKeyRef, wire.MirrorFileToken)
		tls("spec.https.tls", h.TLS)
	}
	if r := m.Spec.Rsync; r != nil && r.Daemon != nil {
		key("spec.rsync.daemon.passwordSecretKeyRef", r.Daemon.PasswordSecretKeyRef, wire.MirrorFilePassword)
	}
	if r := m.Spec.Rsync; r != nil && r.SSH != nil {
		key("spec.rsync.ssh.privateKeySecretKeyRef", &r.SSH.PrivateKeySecretKeyRef, wire.MirrorFileSSHKey)
		key("spec.rsync.ssh.knownHostsSecretKeyRef", &r.SSH.KnownHostsSecretKeyRef, wire.MirrorFileKnownHosts)
	}
	if s := m.Spec.S3; s != nil {
		for _, k := range []string{wire.MirrorFileAccessKeyID, wire.MirrorFileSecretAccessKey} {
			all = append(all, mirrorFile{"spec.s3.credentialsSecretRef", s.CredentialsSecretRef.Name, k, k})
		}
		tls("spec.s3.tls", s.TLS)
	}
	return all
}

// PartnerSecrets are the Secrets that a MirrorPartner itself names.
func PartnerSecrets(m *v1alpha1.MirrorPartner) (needs []SecretNeed) {
	for _, f := range mirrorFiles(m) {
		if i := slices.IndexFunc(needs, func(n SecretNeed) bool { return n.Name == f.secret && n.Field == f.field }); i >= 0 {
			needs[i].Keys = append(needs[i].Keys, f.key)
			continue
		}
		needs = append(needs, SecretNeed{f.field, f.secret, []string{f.key}})
	}
	return needs
}

// MirrorSecrets are the Secrets that a MirrorPartner needs, its Site's among them.
func MirrorSecrets(site *v1alpha1.Site, m *v1alpha1.MirrorPartner) []SecretNeed {
	var store []SecretNeed
	if MirrorReadsArchive(m) {
		store = asUser(ObjectStoreSecrets(site), "readCredentialsSecretRef", site.Spec.ObjectStore.ReadCredentialsSecretRef)
	}
	return slices.Concat(JetStreamSecrets(site), store, PartnerSecrets(m))
}

// mirrorPodSecrets are the Secrets that its pods mount: all except the account's key, which only the operator sees.
func mirrorPodSecrets(site *v1alpha1.Site, m *v1alpha1.MirrorPartner) []SecretNeed {
	return slices.DeleteFunc(MirrorSecrets(site, m), func(n SecretNeed) bool { return slices.Contains(n.Keys, KeyAccountSeed) })
}

// MirrorReadsArchive returns whether the runs of a MirrorPartner need the content of the archive: those that push, and those that compare
// it with another Substorm's. Objects that are pulled by rsync or from a web archive are compared with the notes of earlier runs.
func MirrorReadsArchive(m *v1alpha1.MirrorPartner) bool {
	return m.Spec.Direction != v1alpha1.MirrorPull || OriginOf(m.Spec.HTTPS) != ""
}

// OriginOf returns the code of the Substorm that a mirror pulls from; empty if it pulls from none.
func OriginOf(h *v1alpha1.MirrorHTTPS) string {
	if h == nil {
		return ""
	}
	return h.Origin
}
