// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/surge"
	"github.com/substorm/substorm/operator/surge/spaceweather"
)

// The default intervals of sources; that of the solar wind comes first.
const windInterval, weatherInterval = time.Minute, 5 * time.Minute

// newWeatherSource returns the pollers of a source. Its error says why it cannot be asked.
func newWeatherSource(declared v1alpha1.SpaceWeatherSource, now func() time.Time, log *slog.Logger) (*weatherSource, error) {
	configs, err := askedOf(&declared)
	if err != nil {
		return nil, fmt.Errorf("spec.spaceWeather.sources, %s: %w", declared.Name, err)
	}
	source := &weatherSource{declared: declared}
	for _, one := range configs {
		one.Now, one.Log = now, log
		one.Interval, one.StaleAfter = durationOr(declared.PollInterval, one.Interval), durationOr(declared.StaleAfter, 0)
		p, err := spaceweather.NewPoller(one)
		if err != nil {
			return nil, fmt.Errorf("spec.spaceWeather.sources, %s: %w", declared.Name, err)
		}
		source.pollers = append(source.pollers, p)
	}
	return source, nil
}

func durationOr(d *metav1.Duration, otherwise time.Duration) time.Duration {
	if d == nil {
		return otherwise
	}
	return d.Duration
}

// askedOf returns one poller's configuration or, if quantities come in separate documents, several.
func askedOf(s *v1alpha1.SpaceWeatherSource) ([]spaceweather.Config, error) {
	one := spaceweather.Config{Name: s.Name, Interval: weatherInterval}
	var err error
	switch s.Type {
	case v1alpha1.SpaceWeatherPlanetaryKIndex:
		url := ""
		if s.PlanetaryKIndex != nil {
			url = s.PlanetaryKIndex.URL
		}
		one.Source, err = spaceweather.NewSWPC(surge.Kp, url)
	case v1alpha1.SpaceWeatherSolarWind:
		return solarWind(s)
	case v1alpha1.SpaceWeatherHTTP:
		cfg := spaceweather.JSONConfig{URL: s.HTTP.URL, Time: s.HTTP.TimePath, Lasts: durationOr(s.HTTP.ValidFor, 0), Values: map[surge.Quantity]string{}}
		for _, v := range s.HTTP.Values {
			cfg.Values[surge.Quantity(v.Quantity)] = v.Path
		}
		one.Source, err = spaceweather.NewJSON(cfg)
	case v1alpha1.SpaceWeatherStatic:
		values := map[surge.Quantity]float64{}
		for _, v := range s.Static.Values {
			value, err := strconv.ParseFloat(v.Value, 64)
			if err != nil {
				return nil, fmt.Errorf("static.values: %w", err)
			}
			values[surge.Quantity(v.Quantity)] = value
		}
		one.Source, err = spaceweather.NewStatic(values)
	case v1alpha1.SpaceWeatherRecorded:
		one.Interval = spaceweather.MinInterval
		one.Source, err = spaceweather.NewRecorded(strings.NewReader(s.Recorded.Data),
			spaceweather.RecordedConfig{Start: s.Recorded.StartTime.Time, SpeedUp: float64(s.Recorded.SpeedUp), Delay: durationOr(s.Recorded.Delay, 0)})
		if err != nil {
			err = fmt.Errorf("recorded.data: %w", err)
		}
	default:
		err = fmt.Errorf("type %q is not known to this version", s.Type)
	}
	return []spaceweather.Config{one}, err
}

// solarWind has a document for each quantity.
func solarWind(s *v1alpha1.SpaceWeatherSource) (all []spaceweather.Config, err error) {
	var urls v1alpha1.SpaceWeatherSolarWindSource
	if s.SolarWind != nil {
		urls = *s.SolarWind
	}
	for _, d := range []struct {
		quantity surge.Quantity
		url      string
	}{{surge.Bz, urls.MagneticFieldURL}, {surge.Speed, urls.PlasmaURL}} {
		source, err := spaceweather.NewSWPC(d.quantity, d.url)
		if err != nil {
			return nil, err
		}
		all = append(all, spaceweather.Config{Name: s.Name, Source: source, Interval: windInterval})
	}
	return all, nil
}
