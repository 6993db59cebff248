// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/finding"
	"github.com/substorm/substorm/operator/surge"
)

// Weather is what the sources of a Site's space weather reported.
type Weather struct {
	Signals surge.Signals
	// Failures of sources whose last question had no answer that could be used, one of each document.
	Failures []SourceFailure
	// Invalid says of each source that cannot be asked as it is declared why.
	Invalid []string
}

// SourceFailure is the failure of a source.
type SourceFailure struct {
	// Error names the source, and stays as it is while it fails for the same reason.
	Error string
	// Since is when it began to fail.
	Since time.Time
}

// surge plans what space weather requires of the Site, with its conditions, and after how long that changes by itself.
func (v SiteView) surge(c *finding.Conditions) (*v1alpha1.SurgeStatus, time.Duration) {
	levels := SurgeLevels(v.Site)
	if len(levels) == 0 {
		return nil, 0
	}
	weather := v.weather()
	state, decision := v.nextSurge(levels)
	status := surgeStatus(&state)
	status.Message = bounded(decision.Why, maxSurgeMessage)
	status.Values = weatherValues(weather.Signals)
	c.Set(v1alpha1.ConditionSpaceWeatherKnown, weather.known(levels, v.Now))
	c.Set(v1alpha1.ConditionSurging, surging(&state, &decision))
	if f, found := v.floorWithoutPool(); found {
		c.Set(v1alpha1.ConditionFloorWithoutPool, f)
	}
	return status, decision.LookAgain
}

// nextSurge decides from the known signals.
func (v SiteView) nextSurge(levels []surge.Level) (surge.State, surge.Decision) {
	return surge.Next(levels, v.weather().Signals, surgeState(v.Site.Status.Surge), v.Now)
}

func (v SiteView) weather() *Weather {
	if v.Weather == nil {
		return &Weather{}
	}
	return v.Weather
}

// maxSurgeMessage is how long a message may be, in bytes.
const maxSurgeMessage = 1024

func bounded(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-len("…")], "") + "…"
}

// surging says whether a level holds, in words that stay as they are while it does and is fulfilled, held or unknown.
func surging(s *surge.State, d *surge.Decision) finding.Finding {
	switch {
	case s.Level == "" && d.Unknown != "":
		return finding.Bad(v1alpha1.ReasonNoLevel, "space weather asks for no more pods, as far as is known")
	case s.Level == "":
		return finding.Bad(v1alpha1.ReasonNoLevel, "space weather asks for no more pods")
	case d.Verdict == surge.True:
		return finding.Good(v1alpha1.ReasonLevelFulfilled, "level "+d.Steady)
	}
	return finding.Good(v1alpha1.ReasonLevelHeld, "level "+d.Steady)
}

// known returns whether all quantities that levels ask for are known, in words that stay as they are. A quantity that is not known gives
// the reason: a source that cannot be asked changes no level while others report all that levels ask for. It makes the condition False,
// though: its declaration must be corrected.
func (w *Weather) known(levels []surge.Level, now time.Time) finding.Finding {
	is := finding.Good(v1alpha1.ReasonFresh, "all that levels ask for is known")
	var each []string
	for _, q := range surge.Asked(levels) {
		f := w.quantity(q, now)
		if each = append(each, f.Message); is.OK() && !f.OK() || is.Status == metav1.ConditionUnknown && f.Status == metav1.ConditionFalse {
			is = f // problems that do not end by themselves come first
		}
	}
	switch {
	case !is.OK():
		if len(w.Invalid) > 0 {
			is.Status = metav1.ConditionFalse
		}
		is.Message = strings.Join(each, "; ") + ": what is not known raises no level and no floor, and lowers none"
	case len(w.Invalid) > 0:
		is = finding.Bad(v1alpha1.ReasonSourceInvalid, "all that levels ask for is known, and they go on: "+strings.Join(each, "; "))
	}
	for _, problem := range w.Invalid {
		is.Message += ". A source cannot be asked, correct or remove it: " + problem
	}
	for _, f := range w.Failures {
		is.Message += fmt.Sprintf(". Since %s, %s", stamp(f.Since), f.Error)
	}
	return is
}

// quantity says whether one is known.
func (w *Weather) quantity(q surge.Quantity, now time.Time) finding.Finding {
	s := w.Signals.Of(q)
	newest, is := s.Newest()
	switch {
	case s == nil && len(w.Invalid) > 0:
		return finding.Bad(v1alpha1.ReasonSourceInvalid, fmt.Sprintf("no source that can be asked tells %s", q))
	case s == nil:
		return finding.Bad(v1alpha1.ReasonNeverTold, fmt.Sprintf("no source of spec.spaceWeather tells %s, declare one", q))
	case !is:
		return finding.Unknown(v1alpha1.ReasonNeverTold, fmt.Sprintf("%s was never told by %s", q, s.Source))
	case !s.Fresh(now):
		return finding.Unknown(v1alpha1.ReasonStale, fmt.Sprintf("%s is known until %s only, by %s", q, stamp(newest.To), s.Source))
	}
	return finding.Good(v1alpha1.ReasonFresh, fmt.Sprintf("%s is told by %s", q, s.Source))
}

func weatherValues(signals surge.Signals) (all []v1alpha1.SpaceWeatherValue) {
	for _, s := range signals {
		if newest, is := s.Newest(); is {
			all = append(all, v1alpha1.SpaceWeatherValue{
				Quantity: v1alpha1.SpaceWeatherQuantity(s.Quantity), Value: decimalText(newest.Value), Source: s.Source,
				Spacecraft: bounded(newest.Spacecraft, 32), ValidTime: metav1.NewTime(newest.To.UTC().Truncate(time.Second)),
			})
		}
	}
	return all
}

// decimalText has as many decimals as thresholds have. A third of Kp may arrive as 2.3333333333333335, which is too long for the API
// server, and then it refuses the whole status.
func decimalText(value float64) string {
	const decimals = 1e4
	return strconv.FormatFloat(math.Round(value*decimals)/decimals+0, 'f', -1, 64) // + 0: of -0, too
}

// surgeState is the state that a status keeps.
func surgeState(s *v1alpha1.SurgeStatus) (state surge.State) {
	if s == nil {
		return state
	}
	state.Level = s.Level
	if s.LevelTime != nil {
		state.Since = s.LevelTime.UTC()
	}
	for _, l := range s.Levels {
		state.Levels = append(state.Levels, surge.LevelState{Name: l.Name, Because: l.Message, Hold: countdown(l.Hold)})
	}
	for _, f := range s.Floors {
		state.Floors = append(state.Floors, surge.FloorState{Pool: surge.Pool{Kind: string(f.Kind), Name: f.Name}, Replicas: f.Replicas, Level: f.Level, Release: countdown(f.Release)})
	}
	return state
}

// surgeStatus keeps a state.
func surgeStatus(s *surge.State) *v1alpha1.SurgeStatus {
	status := &v1alpha1.SurgeStatus{Level: s.Level, FloorSummary: floorSummary(s.Floors)}
	if !s.Since.IsZero() {
		status.LevelTime = new(metav1.NewTime(s.Since))
	}
	for _, l := range s.Levels {
		status.Levels = append(status.Levels, v1alpha1.SurgeLevelStatus{Name: l.Name, Message: bounded(l.Because, maxSurgeMessage), Hold: countdownStatus(l.Hold)})
	}
	for _, f := range s.Floors {
		status.Floors = append(status.Floors, v1alpha1.SurgeFloorStatus{Kind: v1alpha1.SurgePoolKind(f.Kind), Name: f.Name, Replicas: f.Replicas, Level: f.Level, Release: countdownStatus(f.Release)})
	}
	return status
}

// floorSummary is a line of a table: a column of one shows no list.
func floorSummary(floors []surge.FloorState) string {
	var all []string
	for _, f := range floors {
		pools := f.Kind
		if f.Name != "" {
			pools += "/" + f.Name
		}
		all = append(all, fmt.Sprintf("%s %d", pools, f.Replicas))
	}
	return bounded(strings.Join(all, ", "), maxSurgeMessage)
}

func countdown(c *v1alpha1.SurgeCountdown) *surge.Countdown {
	if c == nil {
		return nil
	}
	is := &surge.Countdown{From: c.StartTime.UTC()}
	if c.StopTime != nil {
		is.StoppedAt = new(c.StopTime.UTC())
	}
	return is
}

func countdownStatus(c *surge.Countdown) *v1alpha1.SurgeCountdown {
	if c == nil {
		return nil
	}
	is := &v1alpha1.SurgeCountdown{StartTime: metav1.NewTime(c.From)}
	if c.StoppedAt != nil {
		is.StopTime = new(metav1.NewTime(*c.StoppedAt))
	}
	return is
}
