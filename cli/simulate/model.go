// SPDX-License-Identifier: Apache-2.0

// Package simulate sends the traffic of the studies that Substorm is measured
// by, or of a mixture from a file, and says what became of it.
//
// A Model names sources; a plan draws, from a seed, what each of them sends and
// when; the run sends that over TCP, where only a receipt counts (package send),
// or over UDP, which has none; the report counts by source and holds the
// histogram of how long receipts took.
package simulate

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Model is a mixture of sources.
type Model struct {
	// Name in reports.
	Name string `json:"name,omitempty"`
	// About says in a line where the figures come from.
	About   string   `json:"about,omitempty"`
	Sources []Source `json:"sources"`
}

// Protocol is what a source sends over.
type Protocol string

// The protocols.
const (
	TCP Protocol = "TCP"
	UDP Protocol = "UDP"
)

// Source is a kind of instrument.
type Source struct {
	Name string `json:"name"`
	// Count of such instruments, each with a rhythm of its own; default 1.
	Count int `json:"count,omitempty"`
	// Protocol is TCP (default) or UDP.
	Protocol Protocol `json:"protocol,omitempty"`
	// Sizes in bytes. Each object draws one of them, all equally likely.
	Sizes []resource.Quantity `json:"sizes"`
	// DeviationPercent makes sizes Gaussian around the one that was drawn: the
	// standard deviation, as a share of it.
	DeviationPercent float64 `json:"deviationPercent,omitempty"`

	// Every or Rate (objects a second) of each instrument. With neither, a
	// sender sends its next object as soon as it has the receipt of the last one.
	Every *metav1.Duration `json:"every,omitempty"`
	Rate  float64          `json:"rate,omitempty"`
	// Poisson makes the intervals exponential around their mean.
	Poisson bool `json:"poisson,omitempty"`
	// Bursts: Every or Rate hold only within bursts.
	Bursts *Bursts `json:"bursts,omitempty"`
}

// Bursts alternate with silence; both last exponentially distributed times.
type Bursts struct {
	// Lasting and Silence are the means.
	Lasting metav1.Duration `json:"lasting"`
	Silence metav1.Duration `json:"silence"`
}

// minSize is the least size in bytes: the number of an object stands at its
// beginning, so that no two are equal.
const minSize = headerSize

// maxDatagram is the greatest payload of a UDP packet over IPv4 (RFC 768).
const maxDatagram = 65_507

// maxSize bounds what an object may weigh.
const maxSize = 16 << 30

// maxSources bounds the sources of a model: the number of one takes two bytes.
const maxSources = 1000

// maxCount bounds the instruments of a model.
const maxCount = 100_000

// Bounds of the interval between two objects of an instrument, and of the rates per second that
// result from it. Beyond these, a plan would not come to an end, or to its beginning.
const (
	minInterval = time.Microsecond
	maxInterval = 365 * 24 * time.Hour
	minRate     = 1 / float64(maxInterval/time.Second)
	maxRate     = 1_000_000
)

// maxBursts bounds the bursts that pass between two objects.
const maxBursts = 10_000

// check fills in defaults and finds what makes no sense; errors name the source.
func (m *Model) check() error {
	if len(m.Sources) == 0 || len(m.Sources) > maxSources {
		return fmt.Errorf("model %s has %d sources: name from 1 to %d", m.Name, len(m.Sources), maxSources)
	}
	names, count := map[string]bool{}, 0
	for i := range m.Sources {
		s := &m.Sources[i]
		if s.Name == "" || names[s.Name] {
			return fmt.Errorf("source %d of model %s needs a name of its own", i+1, m.Name)
		}
		names[s.Name] = true
		s.Count = cmp.Or(s.Count, 1)
		if s.Protocol == "" {
			s.Protocol = TCP
		}
		if err := s.check(); err != nil {
			return fmt.Errorf("source %s: %w", s.Name, err)
		}
		count += s.Count
	}
	if count > maxCount {
		return fmt.Errorf("model %s has %d instruments, more than %d", m.Name, count, maxCount)
	}
	for _, s := range m.Sources {
		if s.paced() != m.paced() {
			return fmt.Errorf("source %s: either all sources have every or rate, or none has", s.Name)
		}
	}
	return nil
}

func (s *Source) check() error {
	switch {
	case s.Protocol != TCP && s.Protocol != UDP:
		return fmt.Errorf("protocol %q is neither TCP nor UDP", s.Protocol)
	case s.Count < 0 || s.Count > maxCount:
		return fmt.Errorf("count is a number from 1 to %d", maxCount)
	case len(s.Sizes) == 0:
		return fmt.Errorf("name sizes, such as [32Ki, 64Ki]")
	case !(s.DeviationPercent >= 0 && s.DeviationPercent <= 100):
		return fmt.Errorf("deviationPercent is a number from 0 to 100")
	case s.Every != nil && s.Rate != 0:
		return fmt.Errorf("give every or rate, not both")
	case s.Every != nil && (s.Every.Duration < minInterval || s.Every.Duration > maxInterval),
		s.Rate != 0 && !(s.Rate >= minRate && s.Rate <= maxRate):
		return fmt.Errorf("every and rate must be positive: every is from %v to %v, rate the objects per second that this makes", minInterval, maxInterval)
	case !s.paced() && (s.Poisson || s.Bursts != nil):
		return fmt.Errorf("poisson and bursts need every or rate")
	case s.Bursts != nil && (s.Bursts.Lasting.Duration <= 0 || s.Bursts.Silence.Duration <= 0):
		return fmt.Errorf("bursts need the mean durations lasting and silence")
	case s.Bursts != nil && (s.Bursts.Lasting.Duration > maxInterval || s.Bursts.Silence.Duration > maxInterval):
		return fmt.Errorf("bursts and silence last at most %v", maxInterval)
	case s.Bursts != nil && s.interval()/maxBursts > s.Bursts.Lasting.Duration:
		return fmt.Errorf("bursts last too short a time for one object in any of %d", maxBursts)
	case !s.paced() && s.Protocol == UDP:
		return fmt.Errorf("UDP has no receipt to wait for: give every or rate")
	}
	most := int64(maxSize)
	if s.Protocol == UDP {
		most = maxDatagram
	}
	for _, q := range s.Sizes {
		if n := q.Value(); n < minSize || n > most {
			return fmt.Errorf("size %s is not from %d to %d bytes, the limits of %s", q.String(), minSize, most, s.Protocol)
		}
	}
	return nil
}

func (s *Source) paced() bool { return s.Every != nil || s.Rate > 0 }

// paced says whether the model has a rhythm of its own; otherwise receipts set it.
func (m *Model) paced() bool { return len(m.Sources) > 0 && m.Sources[0].paced() }

// uses says whether a source sends over p.
func (m *Model) uses(p Protocol) bool {
	return slices.ContainsFunc(m.Sources, func(s Source) bool { return s.Protocol == p })
}

// interval is the mean between two objects of one instrument, within a burst.
func (s *Source) interval() time.Duration {
	if s.Every != nil {
		return s.Every.Duration
	}
	return time.Duration(float64(time.Second) / s.Rate)
}

// meanRate of all instruments of the source, in objects a second.
func (s *Source) meanRate() float64 {
	r := s.Rate
	if s.Every != nil {
		r = 1 / s.Every.Seconds()
	}
	if s.Bursts != nil {
		r *= s.Bursts.Lasting.Seconds() / (s.Bursts.Lasting.Seconds() + s.Bursts.Silence.Seconds())
	}
	return r * float64(s.Count)
}

// meanRate of the whole model, in objects a second.
func (m *Model) meanRate() float64 {
	sum := 0.0
	for i := range m.Sources {
		sum += m.Sources[i].meanRate()
	}
	return sum
}

// scale makes the model send so many objects a second, each source its share of
// them. A model without a rhythm gets one: a sender's turns become instants,
// equally far apart.
func (m *Model) scale(rate float64) {
	if !m.paced() {
		for i := range m.Sources {
			m.Sources[i].Rate = rate / float64(len(m.Sources)*m.Sources[i].Count)
		}
		return
	}
	factor := rate / m.meanRate()
	for i := range m.Sources {
		s := &m.Sources[i]
		if s.Every != nil {
			s.Rate, s.Every = 1/s.Every.Seconds(), nil
		}
		s.Rate *= factor
	}
}
