// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"strings"
	"time"
)

const registryMirror = "mirror."

// RegistryMirrorKey is the key of a MirrorPartner's entry.
func RegistryMirrorKey(partner string) string { return registryMirror + partner }

// ParseRegistryMirrorKey returns the MirrorPartner that a key names, and false for other keys.
func ParseRegistryMirrorKey(key string) (string, bool) { return named(key, registryMirror) }

// MirrorLease is the key of the lease of a partner's run: two runs of one kind never move at once. Kind is
// MirrorManual, or MirrorScheduled for all others.
func MirrorLease(partner, kind string) string { return "mirror." + partner + "." + kind }

// MirrorCursorKey is where the runs of a partner keep how far they came, in the bucket of cursors. A part is a DNS label
// that the program chooses.
func MirrorCursorKey(partner, part string) string { return "mirror." + partner + "." + part }

// confirmedKeys begins the keys of MirrorConfirmed in the bucket of cursors.
const confirmedKeys = "confirmed."

// MirrorConfirmedKeys are the keys of what a partner has confirmed, as a subject.
func MirrorConfirmedKeys(partner string) string { return confirmedKeys + partner + ".>" }

// MirrorConfirmedKey is where the runs of a partner say that it has removed what a Removal asks for. The archivist deletes it with the
// Removal.
func MirrorConfirmedKey(partner string, r Removal) string {
	return confirmedKeys + partner + "." + strings.TrimPrefix(r.Key(), removalKeys)
}

// ParseMirrorConfirmedKey returns the key of the Removal that a partner confirmed, and false for other keys.
func ParseMirrorConfirmedKey(key string) (removal string, ok bool) {
	rest, ok := strings.CutPrefix(key, confirmedKeys)
	_, of, both := strings.Cut(rest, ".")
	return removalKeys + of, ok && both
}

// MirrorConfirmed says that a partner has removed what was purged here.
type MirrorConfirmed struct {
	At time.Time `json:"at"`
}

// Values of MirrorEntry, spelled as in the MirrorPartner.
const (
	MirrorPull = "Pull"
	MirrorPush = "Push"

	MirrorSourceSubstorm   = "Substorm"
	MirrorSourceWebArchive = "WebArchive"

	MirrorForbid  = "Forbid"
	MirrorReplace = "Replace"

	MirrorVersionsCurrent = "Current"
	MirrorVersionsAll     = "All"

	MirrorVerifyDigest = "Digest"
	MirrorVerifySize   = "Size"
	MirrorVerifyNone   = "None"

	MirrorPruneNever       = "Never"
	MirrorPruneWhenExpired = "WhenExpired"

	MirrorTombstone = "Tombstone"
	MirrorDelete    = "Delete"
	MirrorIgnore    = "Ignore"
)

// The files in the folder of a partner's credentials; an entry says which of them exist: the keys of the Secrets that the MirrorPartner
// names, under these names whatever they are called there.
const (
	MirrorFileToken           = "token"
	MirrorFilePassword        = "password"
	MirrorFileSSHKey          = "ssh-privatekey"
	MirrorFileKnownHosts      = "known_hosts"
	MirrorFileAccessKeyID     = "accessKeyID"
	MirrorFileSecretAccessKey = "secretAccessKey"
	MirrorFileCA              = "ca.crt"
	MirrorFileCertificate     = "tls.crt"
	MirrorFilePrivateKey      = "tls.key"
)

// MirrorEntry is a MirrorPartner as movers know it, with all that a run needs but secrets. Defaults are filled in.
// Durations are in milliseconds.
type MirrorEntry struct {
	// UID and Generation of the MirrorPartner that the entry was made from.
	UID        string `json:"uid"`
	Generation int64  `json:"generation"`
	// Revision of the registry in which the entry last changed.
	Revision int64 `json:"revision"`

	Partner string `json:"partner"`
	// Direction is MirrorPull or MirrorPush.
	Direction string `json:"direction"`
	// Suspended: no run begins but one that a person asks for.
	Suspended bool `json:"suspended,omitempty"`

	// One of these three says how bytes travel.
	HTTPS *MirrorHTTPS `json:"https,omitempty"`
	Rsync *MirrorRsync `json:"rsync,omitempty"`
	S3    *MirrorS3    `json:"s3,omitempty"`

	// One of these two says when.
	Schedule   *MirrorSchedule   `json:"schedule,omitempty"`
	Continuous *MirrorContinuous `json:"continuous,omitempty"`

	Selection MirrorSelection `json:"selection"`
	// Paths say which Instrument a path of a pull belongs to: the first that fits has it; what none fits is
	// quarantined. None of a pull from a Substorm, whose objects name their instruments.
	Paths []MirrorPath `json:"paths,omitempty"`
	// Template of the paths of a push, see internal/naming; empty: those under which the objects are published.
	Template string `json:"template,omitempty"`

	Limits MirrorLimits `json:"limits"`
	// Verify is MirrorVerifyDigest, MirrorVerifySize or MirrorVerifyNone, and VerifyPercent of how many of the objects
	// that the other side has already.
	Verify        string `json:"verify"`
	VerifyPercent int    `json:"verifyPercent,omitempty"`
	// Prune is MirrorPruneNever or MirrorPruneWhenExpired, Retractions MirrorTombstone, MirrorDelete or MirrorIgnore.
	Prune       string `json:"prune"`
	Retractions string `json:"retractions"`
	// SafetyStopPercent: a run that would remove more than this share of the objects that it knows at the other side
	// (of a pull: here) removes none.
	SafetyStopPercent int `json:"safetyStopPercent"`
	// HoldMillis is how long what is due to expire here waits for the partner, counted from when it became due.
	HoldMillis int64 `json:"holdMillis"`
}

// Hold is how long what is due to expire waits for the partner.
func (e *MirrorEntry) Hold() time.Duration { return time.Duration(e.HoldMillis) * time.Millisecond }

func (e *MirrorEntry) check() error {
	protocols := 0
	for _, isSet := range []bool{e.HTTPS != nil, e.Rsync != nil, e.S3 != nil} {
		if isSet {
			protocols++
		}
	}
	switch {
	case e.Partner == "":
		return fmt.Errorf("a mirror without a partner: %w", ErrMalformed)
	case e.Direction != MirrorPull && e.Direction != MirrorPush:
		return fmt.Errorf("mirror of partner %q has the direction %q: %w", e.Partner, e.Direction, ErrMalformed)
	case protocols != 1:
		return fmt.Errorf("mirror of partner %q has %d protocols: %w", e.Partner, protocols, ErrMalformed)
	case e.Rsync != nil && (e.Rsync.Daemon == nil) == (e.Rsync.SSH == nil):
		return fmt.Errorf("mirror of partner %q has neither a daemon of rsync nor a host with ssh, or both: %w", e.Partner, ErrMalformed)
	case (e.Schedule == nil) == (e.Continuous == nil):
		return fmt.Errorf("mirror of partner %q is neither scheduled nor continuous, or both: %w", e.Partner, ErrMalformed)
	}
	return nil
}

// MirrorHTTPS is a server that is pulled from.
type MirrorHTTPS struct {
	// URL of the archive, without a slash at its end.
	URL string `json:"url"`
	// Source is MirrorSourceSubstorm or MirrorSourceWebArchive.
	Source string `json:"source"`
	// Origin of MirrorSourceSubstorm is the code of the Site there: what comes from it is stored below o/<origin>/.
	Origin string `json:"origin,omitempty"`
	// Token says whether there is MirrorFileToken.
	Token bool       `json:"token,omitempty"`
	TLS   *MirrorTLS `json:"tls,omitempty"`
}

// MirrorTLS says which files of TLS there are.
type MirrorTLS struct {
	// CA: MirrorFileCA has the authorities in place of the public ones.
	CA bool `json:"ca,omitempty"`
	// Certificate: MirrorFileCertificate and MirrorFilePrivateKey are our own.
	Certificate bool `json:"certificate,omitempty"`
}

// MirrorRsync is the other side of rsync; one of the two.
type MirrorRsync struct {
	Daemon *MirrorRsyncDaemon `json:"daemon,omitempty"`
	SSH    *MirrorRsyncSSH    `json:"ssh,omitempty"`
}

// MirrorRsyncDaemon is an rsync daemon.
type MirrorRsyncDaemon struct {
	// Address is host:port.
	Address string `json:"address"`
	Module  string `json:"module"`
	// Path below the module, without a slash at either end; empty: the module itself.
	Path string `json:"path,omitempty"`
	// User that MirrorFilePassword is of; empty if none is asked for.
	User string `json:"user,omitempty"`
}

// MirrorRsyncSSH is rsync over ssh, with MirrorFileSSHKey and MirrorFileKnownHosts.
type MirrorRsyncSSH struct {
	Host string `json:"host"`
	Port int    `json:"port"`
	User string `json:"user"`
	// Path of the folder on the other side.
	Path string `json:"path"`
}

// MirrorS3 is a bucket that is pushed to, with MirrorFileAccessKeyID and MirrorFileSecretAccessKey.
type MirrorS3 struct {
	Endpoint string `json:"endpoint"`
	Bucket   string `json:"bucket"`
	// Prefix of the keys, without a slash at its end; empty: none.
	Prefix string     `json:"prefix,omitempty"`
	Region string     `json:"region"`
	TLS    *MirrorTLS `json:"tls,omitempty"`
}

// MirrorSchedule says when runs begin, as a Kubernetes CronJob does. Movers need none of it; a Site in one process does.
type MirrorSchedule struct {
	Cron string `json:"cron"`
	// TimeZone of the tz database.
	TimeZone string `json:"timeZone"`
	// StartingDeadlineMillis is how late a run may begin; 0: any time.
	StartingDeadlineMillis int64 `json:"startingDeadlineMillis,omitempty"`
	// Concurrency is MirrorForbid or MirrorReplace.
	Concurrency string `json:"concurrency"`
}

// MirrorContinuous is a mirror that follows what is announced.
type MirrorContinuous struct {
	// IntervalMillis between two comparisons of all that is selected.
	IntervalMillis int64 `json:"intervalMillis"`
}

// MirrorSelection says what is mirrored.
type MirrorSelection struct {
	// Instruments by name and in order, or AllInstruments: of a push those of the Site that the selector matches, which
	// still must be readable to access.Mirror; of a pull from a Substorm those of the origin. Other pulls have none:
	// see MirrorEntry.Paths.
	Instruments []string `json:"instruments,omitempty"`
	// ObservedFrom and ObservedTo bound the time of observation, else of receipt: [from, to). ObservedWithinMillis does
	// so by its age. Zero members bound nothing.
	ObservedFrom         time.Time `json:"observedFrom,omitzero"`
	ObservedTo           time.Time `json:"observedTo,omitzero"`
	ObservedWithinMillis int64     `json:"observedWithinMillis,omitempty"`
	// Versions is MirrorVersionsCurrent or MirrorVersionsAll.
	Versions string `json:"versions"`
	// Embargoed: data under embargo is mirrored, too.
	Embargoed bool `json:"embargoed,omitempty"`
}

// Observed are the bounds of the time of observation that is selected: [from, to). The zero time is no bound.
func (s *MirrorSelection) Observed(now time.Time) (from, to time.Time) {
	from, to = s.ObservedFrom, s.ObservedTo
	if s.ObservedWithinMillis > 0 {
		if within := now.Add(-time.Duration(s.ObservedWithinMillis) * time.Millisecond); within.After(from) {
			from = within
		}
	}
	return from, to
}

// MirrorPath gives paths of a pull to an Instrument.
type MirrorPath struct {
	// Pattern of the path below the URL or folder that is pulled: * matches any characters but a slash, ? one of them,
	// ** as a whole part any number of parts, none too.
	Pattern    string `json:"pattern"`
	Instrument string `json:"instrument"`
}

// MirrorLimits are what a run may take. Zero members bound nothing.
type MirrorLimits struct {
	BytesPerSecond int64 `json:"bytesPerSecond,omitempty"`
	// Connections that are open at a time.
	Connections int `json:"connections"`
	// TimeZone of Rates and Windows.
	TimeZone string `json:"timeZone"`
	// Rates are in force at their times in place of BytesPerSecond: the first that applies.
	Rates []MirrorRate `json:"rates,omitempty"`
	// Maintenance windows in which nothing is moved: a run waits for their end.
	Maintenance []MirrorWindow `json:"maintenance,omitempty"`
}

// MirrorRate is a rate at times of the week.
type MirrorRate struct {
	MirrorWindow
	BytesPerSecond int64 `json:"bytesPerSecond"`
}

// MirrorWindow is a part of some days of the week.
type MirrorWindow struct {
	// Days on which it begins, Monday and so on in English; none: each day.
	Days []string `json:"days,omitempty"`
	// From and To are times of day, as 18:00; To is the next day's where it is not after From.
	From string `json:"from"`
	To   string `json:"to"`
}
