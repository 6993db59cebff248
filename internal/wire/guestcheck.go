// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Entries of another Site about its instruments are checked as the API server checks what is declared here: pages, headers and lists of
// all readers show them. The patterns and lengths are those of the fields of an Instrument.

// guestText is a text of a guest's entry.
type guestText struct {
	field string
	value *string
	max   int
	// pattern that it matches; nil: any text without control characters.
	pattern *regexp.Regexp
}

var (
	guestLicense   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.+-]*$`)
	guestDOI       = regexp.MustCompile(`^10\.[0-9]{4,9}/[-._;()/:A-Za-z0-9]+$`)
	guestType      = regexp.MustCompile(`^[A-Z][A-Za-z0-9]*$`)
	guestLatitude  = regexp.MustCompile(`^-?([0-8]?[0-9](\.[0-9]{1,8})?|90(\.0{1,8})?)$`)
	guestLongitude = regexp.MustCompile(`^-?((1[0-7][0-9]|[0-9]?[0-9])(\.[0-9]{1,8})?|180(\.0{1,8})?)$`)
	guestStation   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]*$`)
	guestMediaType = regexp.MustCompile(`^[a-z]+/[a-zA-Z0-9.+-]+$`)
)

const (
	maxGuestLabel   = 63
	maxGuestContact = 512 // a name, and an address in angle brackets
	minGuestMeters  = -500
	maxGuestMeters  = 9000
)

// texts of the entry; each may be empty.
func (e *GuestEntry) texts() []guestText {
	all := []guestText{
		{"station", &e.Station, maxGuestLabel, guestStation},
		{"mediaType", &e.MediaType, maxMediaTypeSaid, guestMediaType},
	}
	if r := e.Rights; r != nil {
		all = append(all, guestText{"rights.license", &r.License, 64, guestLicense}, guestText{"rights.doi", &r.DOI, 200, guestDOI},
			guestText{"rights.citation", &r.Citation, 1000, nil}, guestText{"rights.credit", &r.Credit, 300, nil})
	}
	if a := e.About; a != nil {
		all = append(all, guestText{"about.type", &a.Type, maxGuestLabel, guestType}, guestText{"about.latitude", &a.Latitude, 16, guestLatitude},
			guestText{"about.longitude", &a.Longitude, 16, guestLongitude}, guestText{"about.contact", &a.Contact, maxGuestContact, nil})
	}
	return all
}

// fits says whether the text is what an Instrument could declare.
func (t guestText) fits() bool {
	s := *t.value
	if s == "" {
		return true
	}
	return utf8.ValidString(s) && utf8.RuneCountInString(s) <= t.max && !strings.ContainsFunc(s, unicode.IsControl) && (t.pattern == nil || t.pattern.MatchString(s))
}

func (e *GuestEntry) check() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("guest %.100q of origin %.100q, reported by partner %.100q: %s: %w", e.Instrument, e.Origin, e.Partner, fmt.Sprintf(format, args...), ErrMalformed)
	}
	for _, name := range []string{e.Origin, e.Instrument, e.Partner} {
		if !instrumentLabel.MatchString(name) {
			return bad("%.100q is not a name of an Instrument, a Site or a MirrorPartner: at most %d lower-case letters, digits and dashes", name, maxGuestLabel)
		}
	}
	for _, text := range e.texts() {
		if !text.fits() {
			return bad("its %s is not valid for an Instrument: %.100q", text.field, *text.value)
		}
	}
	if meters := e.metersBad(); meters != nil {
		return bad("its about.altitudeMeters is out of range: %d", *meters)
	}
	if a := e.Access; a != nil && !a.isKnown() {
		return bad("its access is invalid: live %.100q, archive %.100q, embargoMillis %d", a.Live, a.Archive, a.EmbargoMillis)
	}
	return nil
}

// metersBad is the altitude where no place has it.
func (e *GuestEntry) metersBad() *int32 {
	if e.About == nil || e.About.AltitudeMeters == nil || *e.About.AltitudeMeters >= minGuestMeters && *e.About.AltitudeMeters <= maxGuestMeters {
		return nil
	}
	return e.About.AltitudeMeters
}

// isKnown says whether this version knows all that the access says.
func (a *AccessEntry) isKnown() bool {
	known := func(s string) bool { return s == AccessPublic || s == AccessAuthenticated || s == AccessRestricted }
	return known(a.Live) && known(a.Archive) && a.EmbargoMillis >= 0
}

// Plain is the entry with only what an Instrument could declare, and the names of the fields whose values were dropped: another Site may
// be a newer version, or malicious. Text in several lines becomes one line. If this version does not know the access, no reader may read.
func (e GuestEntry) Plain() (plain GuestEntry, lacks []string) {
	if e.Rights != nil {
		rights := *e.Rights
		e.Rights = &rights
	}
	if e.About != nil {
		about := *e.About
		e.About = &about
	}
	for _, text := range e.texts() {
		if text.pattern == nil {
			*text.value = strings.Join(strings.FieldsFunc(*text.value, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }), " ")
		}
		if !text.fits() {
			lacks = append(lacks, text.field)
			*text.value = ""
		}
	}
	if e.metersBad() != nil {
		lacks = append(lacks, "about.altitudeMeters")
		e.About.AltitudeMeters = nil
	}
	if a := e.Access; a != nil {
		access := *a
		access.Readers = nil // they are the origin's
		if !access.isKnown() {
			lacks = append(lacks, "access")
			access = AccessEntry{Live: AccessRestricted, Archive: AccessRestricted}
		}
		e.Access = &access
	}
	return e, lacks
}

// CheckName says whether the names of the guest are ones. Errors: ErrMalformed.
func (e *GuestEntry) CheckName() error {
	named := GuestEntry{Origin: e.Origin, Instrument: e.Instrument, Partner: e.Partner}
	return named.check()
}
