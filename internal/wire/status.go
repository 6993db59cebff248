// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"slices"
	"strings"
	"time"
)

// GatewayReportInterval is how often a gateway reports on instruments; a pod without a report for three intervals is absent.
const GatewayReportInterval = 2 * time.Second

// maxTelemetryReportWait is the longest wait of TelemetryReportWait.
const maxTelemetryReportWait = 10 * time.Second

// TelemetryReportWait is how long a gateway that gathers datagrams reports an instrument no more, where only datagrams are new: half of the
// cadence at most, so that data which comes in time is not taken for overdue.
func TelemetryReportWait(cadence time.Duration) time.Duration {
	return min(maxTelemetryReportWait, cadence/2)
}

// GatewayName is the DNS name in the certificate that a pool's gateways show each
// other.
func GatewayName(pool string) string { return pool + ".gateways.substorm" }

// GatewayStatusKey is where a gateway pod reports about itself.
func GatewayStatusKey(gateway string) string { return "gateway." + gateway }

// VolumeReporter is the name under which a report of a gateway pod is kept beside the report of another pod of the same name, which runs
// on another volume: the pod was deleted by force and recreated, and what its old volume holds is not forgotten. No pod has such a name.
func VolumeReporter(gateway, volume string) string { return gateway + "_" + volume }

// ParseVolumeReporter reads what VolumeReporter wrote, and returns false for the name of a pod.
func ParseVolumeReporter(name string) (gateway, volume string, ok bool) {
	return strings.Cut(name, "_")
}

// InstrumentStatusKey is where a gateway pod reports about an instrument.
func InstrumentStatusKey(instrument, gateway string) string {
	return "instrument." + instrument + "." + gateway
}

// RefusalStatusKey is where a gateway pod reports whom it took not quite for an
// instrument.
func RefusalStatusKey(instrument, gateway string) string {
	return "refusal." + instrument + "." + gateway
}

// ParseRefusalStatusKey reads what RefusalStatusKey wrote, and returns false for
// other keys.
func ParseRefusalStatusKey(key string) (instrument, gateway string, ok bool) {
	p := strings.Split(key, ".")
	if len(p) != 3 || p[0] != "refusal" || slices.Contains(p, "") {
		return "", "", false
	}
	return p[1], p[2], true
}

// ParseStatusKey reads what GatewayStatusKey or InstrumentStatusKey wrote; for
// the former, instrument is empty. It returns false for other keys.
func ParseStatusKey(key string) (instrument, gateway string, ok bool) {
	p := strings.Split(key, ".")
	switch {
	case slices.Contains(p, ""):
		return "", "", false
	case len(p) == 2 && p[0] == "gateway":
		return "", p[1], true
	case len(p) == 3 && p[0] == "instrument":
		return p[1], p[2], true
	default:
		return "", "", false
	}
}

// GatewayStatus is what a gateway pod reports every LoadReportInterval.
type GatewayStatus struct {
	// Gateway is the pod, Pool its IngestGateway.
	Gateway     string    `json:"gateway"`
	Pool        string    `json:"pool"`
	Incarnation string    `json:"incarnation"`
	Node        string    `json:"node,omitempty"`
	Address     string    `json:"address,omitempty"`
	StartedAt   time.Time `json:"startedAt"`
	ReportedAt  time.Time `json:"reportedAt"`
	// Volume names the volume that the pod's spool is on; empty in reports of before
	// volumes had names.
	Volume string `json:"volume,omitempty"`
	// Revision of the registry that the pod runs; 0 before the first.
	Revision int64  `json:"revision"`
	Datapath string `json:"datapath"`
	// Problems are what keeps an instrument from being received, by instrument.
	Problems map[string]string `json:"problems,omitempty"`
	Draining bool              `json:"draining,omitempty"`
	// Load of the pod; nil in its first report, and in those of before pods reported it.
	Load *Load `json:"load,omitempty"`
	// Spool is what is receipted and waits on the pod's volume.
	Spool *SpoolStatus `json:"spool,omitempty"`
	// Stopped: this is the pod's final report. A pod that ends without one may have
	// received more since.
	Stopped bool `json:"stopped,omitempty"`
	// Unwritten: it stopped before all that it counted was in the ledger. Its next incarnation
	// counts the rest.
	Unwritten bool `json:"unwritten,omitempty"`

	// Replica is where the pod takes copies of what waits in the spools of its
	// pool's other pods, as host:port; empty where it takes none.
	Replica string `json:"replica,omitempty"`
	// Peer is the pod that its own copies go to; empty if there is none.
	Peer string `json:"peer,omitempty"`
	// Copies are what the pod keeps for others.
	Copies []CopiesStatus `json:"copies,omitempty"`

	// Mirror is where the pod takes what runs of mirrors pull; nil where it does not.
	Mirror *MirrorListener `json:"mirror,omitempty"`
}

// MirrorListener is where a gateway takes what runs of mirrors pull, see MirroredPath.
type MirrorListener struct {
	// Address is host:port.
	Address string `json:"address"`
	// Certificate is the SHA-256 of the certificate (DER) that the gateway shows there. Its key leaves the process at no time.
	Certificate Digest `json:"certificate"`
}

// CopiesStatus says what a gateway keeps of another one's spool.
type CopiesStatus struct {
	// Owner is the pod that received the objects.
	Owner   string `json:"owner"`
	Objects int64  `json:"objects"`
	Bytes   int64  `json:"bytes"`
	// Oldest is when the oldest of them was received.
	Oldest *time.Time `json:"oldest,omitempty"`
}

// SpoolStatus says what waits in a gateway's spool.
type SpoolStatus struct {
	Objects int64 `json:"objects"`
	Bytes   int64 `json:"bytes"`
	// Oldest is when the oldest of them was received.
	Oldest *time.Time `json:"oldest,omitempty"`
	// Size is what the spool may take, in bytes.
	Size int64 `json:"size"`
	// Quarantined is how many corrupt records lie in the spool's quarantine.
	Quarantined int64 `json:"quarantined,omitempty"`
}

// InstrumentStatus is what a gateway pod reports about an instrument, when it
// changed and at most every GatewayReportInterval; see TelemetryReportWait.
type InstrumentStatus struct {
	ReportedAt time.Time `json:"reportedAt"`
	// LastReceived is when the last object was receipted or the last datagram read.
	LastReceived time.Time `json:"lastReceived"`
	// Listeners are when that was at each listener of the Instrument that something came to
	// since the pod began, by name.
	Listeners map[string]time.Time `json:"listeners,omitempty"`
	// Day and the objects, datagrams and bytes made safe by this pod in it.
	Day       Day    `json:"day"`
	Objects   uint64 `json:"objects"`
	Datagrams uint64 `json:"datagrams"`
	Bytes     uint64 `json:"bytes"`
	// Achieved is how often datagrams come to this pod, for each channel with datagrams.
	Achieved []AchievedSampling `json:"achieved,omitempty"`
}

// RefusalStatus is whom a gateway pod refused that nearly was an instrument,
// written when it changed and at most every GatewayReportInterval.
type RefusalStatus struct {
	Incarnation string    `json:"incarnation"`
	ReportedAt  time.Time `json:"reportedAt"`
	// Refused by cause, since the incarnation began.
	Refused map[Cause]Refused `json:"refused,omitempty"`
	// Changes are requests to retract, restore or purge that the lease holder refused, by reason. Only the lease holder's report has them
	// (ArchivistWriter).
	Changes map[string]RefusedChange `json:"changes,omitempty"`
}

// RefusedChange counts refusals of one reason, and describes the last.
type RefusedChange struct {
	Count uint64 `json:"count"`
	// ID of the object; Asked is what it was to be (Retracted, Restored, Purged), and By
	// who asked.
	ID    string `json:"id"`
	Asked string `json:"asked"`
	By    string `json:"by"`
	// Why, and what to do, in words for people.
	Why string    `json:"why"`
	At  time.Time `json:"at"`
}

// Refused counts refusals of one cause, and describes the last.
type Refused struct {
	Count uint64 `json:"count"`
	// Source address, protocol and port of the last.
	Source   string `json:"source"`
	Protocol string `json:"protocol"`
	Port     uint16 `json:"port"`
	// Shown is what it showed instead of what is declared; never a token.
	Shown string    `json:"shown,omitempty"`
	At    time.Time `json:"at"`
}
