// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"fmt"
	"io"
	"time"

	"github.com/substorm/substorm/operator/surge"
	"github.com/substorm/substorm/operator/surge/spaceweather"
)

// KpInterval is how long one value of Kp is for.
const KpInterval = 3 * time.Hour

// longest is how much time a replay may have: a year takes a core some four seconds for each draw.
const longest = 2 * 366 * 24 * time.Hour

// Recording is recorded space weather: Kp, and the solar wind if there is any.
type Recording map[surge.Quantity][]surge.Sample

// Read reads a file as the operator reads recorded files (spaceweather.NewRecorded). It needs Kp. Errors name the file and the line.
func Read(file string, from io.Reader) (Recording, error) {
	recorded, err := spaceweather.NewRecorded(from, spaceweather.RecordedConfig{})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	r := Recording{}
	for _, q := range recorded.Quantities() {
		r[q] = recorded.Samples(q)
	}
	if len(r[surge.Kp]) == 0 {
		return nil, fmt.Errorf("%s has no Kp: a replay needs columns time and kp, such as 2015-03-17T12:00:00Z,7.7", file)
	}
	kp := r[surge.Kp]
	if from, to := kp[0].From, kp[len(kp)-1].To; to.Sub(from) > longest {
		return nil, fmt.Errorf("%s has Kp from %s to %s: cut it to two years at most", file, from.Format(time.DateOnly), to.Format(time.DateOnly))
	}
	return r, nil
}

// Levels are the levels of the comparison: with a rule of the solar wind if it was recorded.
func (r Recording) Levels() []surge.Level {
	if len(r[surge.Bz]) > 0 && len(r[surge.Speed]) > 0 {
		return WindLevels()
	}
	return DefaultLevels()
}

// sources replay the recording, except during outages.
func (r Recording) sources(outages []Span) []Source {
	all := []Source{KpSource(r[surge.Kp], outages...)}
	for _, q := range []surge.Quantity{surge.Bz, surge.Speed} {
		if len(r[q]) > 0 {
			all = append(all, windSource(q, r[q], outages...))
		}
	}
	return all
}
