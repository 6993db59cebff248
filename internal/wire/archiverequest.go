// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode"
)

// Action is what an ArchiveRequest asks for.
type Action string

// The values of Action.
const (
	ActionRetract Action = "Retract"
	ActionRestore Action = "Restore"
	ActionPurge   Action = "Purge"
	// ActionSupersede says of a guest's object that a newer version of its name is current at its origin. Which version of
	// what the Site itself received is current, the archivist knows.
	ActionSupersede Action = "Supersede"
)

// MaxReason is how long Reason and By of an ArchiveRequest may be, in bytes: they
// stand in every listing.
const MaxReason = 500

// ArchiveRequest asks the archivist to retract, restore or purge one object. It
// changes nothing by itself: what is published, as a Notice, is what the archivist
// decided.
type ArchiveRequest struct {
	Site       string `json:"site"`
	Instrument string `json:"instrument"`
	// Run names one run of a command: all its decisions are published on one subject.
	Run    string `json:"run"`
	Action Action `json:"action"`
	// ID and ReceivedAt name the object. The manifests say what it is and where it lies.
	ID         string    `json:"id"`
	ReceivedAt time.Time `json:"receivedAt"`
	// Reason says why, in words for people, and By who asks.
	Reason string `json:"reason"`
	By     string `json:"by"`
	// RetractedAt is Origin.RetractedAt of a guest's object that is retracted or purged because it was retracted at its origin.
	RetractedAt *time.Time `json:"retractedAt,omitempty"`
}

// DecisionResult is what became of an ArchiveRequest.
type DecisionResult string

// The values of DecisionResult. Done: the manifests in the bucket say so.
const (
	DecisionDone    DecisionResult = "Done"
	DecisionRefused DecisionResult = "Refused"
)

// ArchiveDecision says what the archivist decided about an ArchiveRequest.
type ArchiveDecision struct {
	Site       string         `json:"site"`
	Instrument string         `json:"instrument"`
	Run        string         `json:"run"`
	Action     Action         `json:"action"`
	ID         string         `json:"id"`
	Result     DecisionResult `json:"result"`
	// Reason is the cause of a refusal, one word, and Message what to do.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// State of the object in the manifests; empty if none lists it.
	State     State     `json:"state,omitempty"`
	DecidedAt time.Time `json:"decidedAt"`
}

var runName = regexp.MustCompile(`^[0-9A-Za-z]{8,64}$`)

// CheckRun returns ErrMalformed for what cannot be ArchiveRequest.Run.
func CheckRun(run string) error {
	if !runName.MatchString(run) {
		return fmt.Errorf("run %q: want 8 to 64 letters and digits: %w", run, ErrMalformed)
	}
	return nil
}

func checkAction(a Action) error {
	switch a {
	case ActionRetract, ActionRestore, ActionPurge, ActionSupersede:
		return nil
	default:
		return fmt.Errorf("action %q: want %s, %s, %s or %s: %w", a, ActionRetract, ActionRestore, ActionPurge, ActionSupersede, ErrMalformed)
	}
}

// CheckReason returns ErrMalformed for what cannot be Reason or By of an
// ArchiveRequest.
func CheckReason(text string) error {
	if len(text) > MaxReason || strings.ContainsFunc(text, unicode.IsControl) {
		return fmt.Errorf("text of %d bytes: want one line of at most %d bytes: %w", len(text), MaxReason, ErrMalformed)
	}
	return nil
}

// MessageID is the request's Nats-Msg-Id.
func (r ArchiveRequest) MessageID() string { return r.Run + "/" + string(r.Action) + "/" + r.ID }

func (r *ArchiveRequest) check() error {
	if r.Site == "" || r.Instrument == "" || r.ID == "" || r.ReceivedAt.IsZero() {
		return fmt.Errorf("request of %q lacks site, instrument, id or receivedAt: %w", r.ID, ErrMalformed)
	}
	for _, err := range []error{CheckRun(r.Run), checkAction(r.Action), CheckReason(r.Reason), CheckReason(r.By)} {
		if err != nil {
			return fmt.Errorf("request of %q: %w", r.ID, err)
		}
	}
	return nil
}

// MessageID is the decision's Nats-Msg-Id.
func (d ArchiveDecision) MessageID() string {
	return "decision/" + d.Run + "/" + string(d.Action) + "/" + d.ID
}

func (d *ArchiveDecision) check() error {
	if d.Site == "" || d.Instrument == "" || d.ID == "" || d.Result != DecisionDone && d.Result != DecisionRefused {
		return fmt.Errorf("decision on %q lacks site, instrument, id or result: %w", d.ID, ErrMalformed)
	}
	for _, err := range []error{CheckRun(d.Run), checkAction(d.Action)} {
		if err != nil {
			return fmt.Errorf("decision on %q: %w", d.ID, err)
		}
	}
	return nil
}

// IsDecided says whether a notice that takes an object back comes from the archivist, by
// its ce-source: it alone decides about that.
func IsDecided(n Notice, source string) bool {
	return source == EventSource(n.Site, ArchivistWriter)
}

// RequestSubject is where ArchiveRequests of an instrument are published, into the
// stream of notices, so that they are read in the order of what they speak of.
// The parts of a guest's name are tokens of their own: a run of mirrors may request changes of what comes from its origin alone.
func RequestSubject(site, instrument string) string {
	return "request." + site + "." + strings.Replace(instrument, guestSeparator, ".", 1)
}

// RequestSubjects matches all ArchiveRequests of a Site.
func RequestSubjects(site string) string { return "request." + site + ".>" }

// DecisionSubject is where the ArchiveDecisions on the requests of a run are
// published, into the stream of notices.
func DecisionSubject(site, instrument, run string) string {
	return "decision." + site + "." + instrument + "." + run
}

// DecisionSubjects matches all ArchiveDecisions of a Site.
func DecisionSubjects(site string) string { return "decision." + site + ".>" }

// NoticeStreamSubjects are all that the stream of notices of a Site takes: notices, gap
// records of consumers, requests of the archivist with their decisions, and changes of the level of space weather.
func NoticeStreamSubjects(site string) []string {
	return []string{NoticeSubjects(site), GapSubjects(site), RequestSubjects(site), DecisionSubjects(site), SurgeSubject(site)}
}
