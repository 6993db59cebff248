// SPDX-License-Identifier: Apache-2.0

package hapi

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/substorm/substorm/internal/decode"
	"github.com/substorm/substorm/internal/wire"
)

// info describes a dataset, see section 3.6.2 of the specification.
type info struct {
	*envelope
	Format            format `json:"format,omitempty"`
	StartDate         string `json:"startDate"`
	StopDate          string `json:"stopDate"`
	SampleStartDate   string `json:"sampleStartDate,omitempty"`
	SampleStopDate    string `json:"sampleStopDate,omitempty"`
	TimeStampLocation string `json:"timeStampLocation"`
	Cadence           string `json:"cadence,omitempty"`
	told
	Generations []generation `json:"x_generations,omitempty"`
	Parameters  []parameter  `json:"parameters"`
}

// parameter describes one, see section 3.6.7.
type parameter struct {
	Name        string  `json:"name"`
	Type        string  `json:"type"`
	Length      int     `json:"length,omitempty"`
	Size        []int   `json:"size,omitempty"`
	Units       *string `json:"units"`
	Fill        *string `json:"fill"`
	Description string  `json:"description,omitempty"`
}

// timeName is what the time of a sample is called.
const timeName = "Time"

// types are HAPI's names of parameter types.
var types = map[string]string{wire.ParameterDouble: "double", wire.ParameterInteger: "integer", wire.ParameterString: "string"}

// describe is the info of a dataset, for the chosen parameters; nil chooses all. It follows the
// description is, and adds what the other generations said.
func (d *dataset) describe(s span, chosen []int, is said, others []wire.Description) info {
	utc := "UTC"
	of := info{
		StartDate: spellTime(s.start), StopDate: spellTime(s.stop), TimeStampLocation: d.channel.Time.Location,
		told:       is.told(),
		Parameters: []parameter{{Name: timeName, Type: "isotime", Length: stampLength(d.channel.Time.Precision), Units: &utc}},
	}
	if !s.sampleStart.IsZero() {
		of.SampleStartDate, of.SampleStopDate = spellTime(s.sampleStart), spellTime(s.sampleStop)
	}
	if ms := d.channel.CadenceMillis; ms > 0 {
		of.Cadence = "PT" + strconv.FormatFloat(float64(ms)/1000, 'f', -1, 64) + "S"
	}
	for _, p := range pick(d.decoder.Parameters(), chosen) {
		one := parameter{Name: p.Name, Type: types[p.Type], Size: p.Size, Fill: p.Fill}
		one.Units, one.Description = is.parameter(p)
		if p.Type == wire.ParameterString {
			one.Length = p.Length
		}
		of.Parameters = append(of.Parameters, one)
	}
	of.Generations = d.differ(is, chosen, others)
	return of
}

// pick returns the chosen parameters; nil chooses all.
func pick(all []decode.Parameter, chosen []int) []decode.Parameter {
	if chosen == nil {
		return all
	}
	some := make([]decode.Parameter, 0, len(chosen))
	for _, i := range chosen {
		some = append(some, all[i])
	}
	return some
}

// with begins the description as an answer.
func (i info) with(c code) info {
	i.envelope = &envelope{Version, c.status()}
	return i
}

func (h *Handler) info(w http.ResponseWriter, r *http.Request, c *caller) *problem {
	asked, p := h.subject(r, c)
	if p != nil {
		return p
	}
	d := asked.dataset
	return h.document(w, r, d.describe(asked.span, asked.chosen, d.describedNow(), d.generations).with(codeOK))
}

// listed is a dataset in the catalog.
type listed struct {
	ID    string `json:"id"`
	Title string `json:"title,omitempty"`
	Info  *info  `json:"info,omitempty"`
}

func (h *Handler) catalog(w http.ResponseWriter, r *http.Request, c *caller) *problem {
	asked, p := fields(r.URL, "depth", "resolve_references")
	if p != nil {
		return p
	}
	depth, given := asked["depth"]
	if given && depth != "dataset" && depth != "all" {
		return failure(codeDepth, "it is dataset or all")
	}
	all := []listed{}
	for _, d := range h.datasets(c) {
		one := listed{ID: d.id, Title: d.title()}
		if depth == "all" {
			s, p := h.span(r.Context(), c, d)
			if p != nil {
				return p
			}
			one.Info = new(d.describe(s, nil, d.describedNow(), d.generations))
		}
		all = append(all, one)
	}
	return h.document(w, r, struct {
		envelope
		Catalog []listed `json:"catalog"`
	}{envelope{Version, codeOK.status()}, all})
}

// title is a short one; the specification asks for 40 characters at most. It names the station, by which people know an instrument.
func (d *dataset) title() string {
	in, channel := &d.instrument, d.channel.Name
	var kind, at string
	if in.About != nil {
		kind = in.About.Type + " "
	}
	if in.Station != "" {
		at = " at " + in.Station
	}
	for _, title := range []string{kind + in.Instrument + at + ", " + channel, in.Instrument + at + ", " + channel, kind + in.Instrument + ", " + channel} {
		if (kind != "" || at != "") && len(title) <= 40 {
			return title
		}
	}
	return d.id
}

func (h *Handler) about(w http.ResponseWriter, r *http.Request, _ *caller) *problem {
	if _, p := fields(r.URL); p != nil {
		return p
	}
	contact := h.cfg.Contact
	contact = cmp.Or(contact, "see the contact of each dataset")
	return h.document(w, r, struct {
		envelope
		ID          string `json:"id"`
		Title       string `json:"title"`
		Contact     string `json:"contact"`
		Description string `json:"description"`
	}{envelope{Version, codeOK.status()}, "Substorm/" + h.cfg.Site, "Instruments of the site " + h.cfg.Site, contact,
		"What the instruments of the site sent, decoded as their declarations say."})
}

func (h *Handler) capabilities(w http.ResponseWriter, r *http.Request, _ *caller) *problem {
	if _, p := fields(r.URL); p != nil {
		return p
	}
	return h.document(w, r, struct {
		envelope
		OutputFormats       []format `json:"outputFormats"`
		CatalogDepthOptions []string `json:"catalogDepthOptions"`
	}{envelope{Version, codeOK.status()}, []format{formatCSV, formatBinary, formatJSON}, []string{"dataset", "all"}})
}

// document answers with JSON, or that nothing changed.
func (h *Handler) document(w http.ResponseWriter, r *http.Request, v any) *problem {
	body, err := json.Marshal(v)
	if err != nil {
		return failure(codeInternal, "").withCause(err)
	}
	sum := sha256.Sum256(body)
	h.send(w, r, "application/json", fmt.Sprintf(`W/"%x"`, sum[:12]), append(body, '\n'))
	return nil
}

// send answers with a whole body, or that nothing changed.
func (h *Handler) send(w http.ResponseWriter, r *http.Request, mediaType, tag string, body []byte) {
	header := w.Header()
	header.Set("ETag", tag)
	header.Set("Cache-Control", "no-cache") // kept by who likes, and asked for each time
	if matches(r.Header.Get("If-None-Match"), tag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	header.Set("Content-Type", mediaType)
	_, _ = w.Write(body) // of HEAD nothing is sent
}

var page = template.Must(template.New("landing").Parse(`<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{{.Site}}: data by HAPI {{.Version}}</title></head>
<body><h1>Data of the site {{.Site}}</h1>
<p>This server speaks <a href="https://hapi-server.org">HAPI</a> {{.Version}}: <a href="hapi/about">about</a>,
<a href="hapi/capabilities">capabilities</a>, <a href="hapi/catalog">catalog</a>. Each dataset is a channel of an instrument.</p>
<table><tr><th>Dataset</th><th>What it is</th><th></th></tr>
{{range .Datasets}}<tr><td><a href="hapi/info?dataset={{.Query}}">{{.ID}}</a></td><td>{{.Title}}</td><td>{{if .Sample}}<a href="hapi/data?{{.Sample}}">a sample</a>{{end}}</td></tr>
{{else}}<tr><td colspan="3">None that you may read.</td></tr>
{{end}}</table></body></html>
`))

// row is a dataset on the landing page.
type row struct {
	ID, Title string
	Query     template.URL
	Sample    template.URL
}

func (h *Handler) landing(w http.ResponseWriter, r *http.Request, c *caller) *problem {
	var rows []row
	for _, d := range h.datasets(c) {
		s, p := h.span(r.Context(), c, d)
		if p != nil {
			return p
		}
		one := row{ID: d.id, Title: d.title(), Query: template.URL(url.QueryEscape(d.id))}
		if !s.sampleStart.IsZero() {
			one.Sample = template.URL(url.Values{"dataset": {d.id}, "start": {spellTime(s.sampleStart)}, "stop": {spellTime(s.sampleStop)}}.Encode())
		}
		rows = append(rows, one)
	}
	var body bytes.Buffer
	err := page.Execute(&body, map[string]any{"Site": h.cfg.Site, "Version": Version, "Datasets": rows})
	if err != nil {
		return failure(codeInternal, "").withCause(err)
	}
	sum := sha256.Sum256(body.Bytes())
	h.send(w, r, "text/html; charset=utf-8", fmt.Sprintf(`W/"%x"`, sum[:12]), body.Bytes())
	return nil
}

// stampLength is how many characters a time of a precision has.
func stampLength(precision string) int {
	i := slices.Index([]string{wire.PrecisionSeconds, wire.PrecisionMilliseconds, wire.PrecisionMicroseconds, wire.PrecisionNanoseconds}, precision)
	if i <= 0 {
		return len("2006-01-02T15:04:05Z")
	}
	return len("2006-01-02T15:04:05.Z") + 3*i
}
