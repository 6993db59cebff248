// SPDX-License-Identifier: Apache-2.0

package console

import (
	"encoding/json"
	"fmt"
	"html/template"
	"net/url"
	"strings"

	"github.com/substorm/substorm/internal/wire"
)

// maxSeries is how many values of a sample are drawn.
const maxSeries = 4

// series is one value of a sample: one line.
type series struct {
	Name  string `json:"name"`
	Units string `json:"units,omitempty"`
}

// dataset is a channel that can be drawn.
type dataset struct {
	// ID is what HAPI calls it.
	ID string `json:"id"`
	// Parameters of HAPI's that hold the series, in order.
	Parameters []string `json:"parameters"`
	Series     []series `json:"series"`
	// Cadence in milliseconds; 0 if it is not declared.
	Cadence int64 `json:"cadence,omitempty"`
	// Live: it comes as datagrams, and the client may have them as they come.
	Live bool `json:"live,omitempty"`
}

// newDataset returns what of a channel is drawn: the first numbers of its samples, as far as all of
// a parameter fit. It is false if there are none.
func newDataset(in *wire.InstrumentEntry, channel *wire.ChannelEntry) (d dataset, ok bool) {
	d = dataset{ID: in.Instrument + "/" + channel.Name, Cadence: channel.CadenceMillis}
	for i := range channel.Parameters {
		p := &channel.Parameters[i]
		if all := seriesOf(p); len(all) > 0 && len(d.Series)+len(all) <= maxSeries {
			d.Parameters, d.Series = append(d.Parameters, p.Name), append(d.Series, all...)
		}
	}
	return d, len(d.Series) > 0
}

// seriesOf are the series of a parameter; none if it has no numbers, or too many.
func seriesOf(p *wire.ParameterEntry) []series {
	count := 1
	for _, n := range p.Size {
		if n < 1 || n > maxSeries {
			return nil
		}
		count *= n
	}
	if p.Type == wire.ParameterString || count > maxSeries {
		return nil
	}
	if count == 1 {
		return []series{{p.Name, p.Units}}
	}
	all := make([]series, count)
	for i := range all {
		all[i] = series{fmt.Sprintf("%s[%d]", p.Name, i), p.Units}
		if len(p.Components) == count {
			all[i].Name = p.Components[i]
		}
	}
	return all
}

// Text is the dataset as the page's scripts read it.
func (d dataset) Text() (string, error) {
	text, err := json.Marshal(d)
	return string(text), err
}

// Query names the dataset in a query of HAPI's.
func (d dataset) Query() template.URL {
	return template.URL("dataset=" + strings.ReplaceAll(url.QueryEscape(d.ID), "%2F", "/"))
}
