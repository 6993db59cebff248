// SPDX-License-Identifier: Apache-2.0

package observing

import (
	"math"
	"time"
)

// j2000 is the epoch of the formulas below: 2000-01-01, noon.
var j2000 = time.Date(2000, 1, 1, 12, 0, 0, 0, time.UTC)

// SunElevation returns how high the sun's center stands above the horizon, in degrees,
// at a place in degrees north and east, without refraction. It is right to a fiftieth of a
// degree between 1950 and 2050 (low-precision formulas of the Astronomical Almanac,
// section C).
func SunElevation(t time.Time, latitude, longitude float64) float64 {
	days := t.Sub(j2000).Hours() / 24
	meanLongitude := 280.460 + 0.9856474*days
	anomaly := radians(357.528 + 0.9856003*days)
	ecliptic := radians(meanLongitude + 1.915*math.Sin(anomaly) + 0.020*math.Sin(2*anomaly))
	obliquity := radians(23.439 - 0.0000004*days)
	rightAscension := math.Atan2(math.Cos(obliquity)*math.Sin(ecliptic), math.Cos(ecliptic))
	declination := math.Asin(math.Sin(obliquity) * math.Sin(ecliptic))
	// Sidereal time at Greenwich, in degrees (Explanatory Supplement to the
	// Astronomical Almanac).
	sidereal := 280.46061837 + 360.98564736629*days
	hourAngle := radians(math.Mod(sidereal+longitude, 360)) - rightAscension
	phi := radians(latitude)
	sin := math.Sin(phi)*math.Sin(declination) + math.Cos(phi)*math.Cos(declination)*math.Cos(hourAngle)
	return math.Asin(math.Max(-1, math.Min(1, sin))) * 180 / math.Pi
}

func radians(degrees float64) float64 { return degrees * math.Pi / 180 }
