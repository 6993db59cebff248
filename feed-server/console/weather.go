// SPDX-License-Identifier: Apache-2.0

package console

import (
	"fmt"
	"time"

	"github.com/substorm/substorm/internal/wire"
)

// weather is the Site's level of space weather, as pages show it. It does not change.
type weather struct {
	// Declared: the Site has levels. All else is empty where it has none.
	Declared bool `json:"declared"`
	// Level that holds; empty: none does.
	Level string     `json:"level,omitempty"`
	Since *time.Time `json:"since,omitempty"`
	Why   string     `json:"why,omitempty"`
	// Values that are known.
	Values []measured `json:"values,omitempty"`
}

// measured is a value that is known of space weather.
type measured struct {
	wire.SpaceWeatherValue
	// Stale: the value is too old to describe the present.
	Stale bool `json:"stale,omitempty"`
}

// newWeather is what is shown at an instant of a level that the operator reported; nil: it reported
// none.
func newWeather(is *wire.SurgeLevel, now time.Time) weather {
	if is == nil {
		return weather{}
	}
	w := weather{Declared: true, Level: is.Level, Since: is.Since, Why: is.Why}
	for _, v := range is.Values {
		w.Values = append(w.Values, measured{v, v.Stale(now)})
	}
	return w
}

// Reading is the value with its unit, as people write it.
func (m measured) Reading() string {
	switch m.Quantity {
	case "Bz":
		return fmt.Sprintf("Bz %.1f nT", m.Value)
	case "Speed":
		return fmt.Sprintf("%.0f km/s", m.Value)
	default:
		return fmt.Sprintf("%s %.1f", m.Quantity, m.Value)
	}
}

// Until is when the value is stale, in milliseconds since 1970.
func (m measured) Until() int64 { return m.ValidTo.UnixMilli() + m.StaleAfterMillis }

// From is the source of the value.
func (m measured) From() string {
	if m.Spacecraft == "" {
		return m.Source
	}
	return m.Source + ", " + m.Spacecraft
}

// UTC and Machine are a time as pages show it, and as HTML reads it.
func (weather) UTC(t time.Time) string     { return row{}.UTC(t) }
func (weather) Machine(t time.Time) string { return row{}.Machine(t) }
