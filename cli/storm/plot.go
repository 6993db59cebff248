// SPDX-License-Identifier: Apache-2.0

package storm

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/substorm/substorm/operator/surge"
	"github.com/substorm/substorm/operator/surge/simulate"
)

// The picture, in points: three panels under each other with one axis of time.
const (
	width, height        = 1000., 640.
	left, right          = 64., 32.
	top, panel, distance = 64., 150., 32.
)

// Picture is of some days: Kp, load and pods, and what was refused.
type Picture struct {
	Title string
	Shown simulate.Span
	Kp    []surge.Sample
	Runs  []Run
	// Asked is what real pods were asked for. It is drawn in place of load and of what was refused, which simulations have.
	Asked []Asked
}

// Asked is what was asked for from a time on, in requests a second, and how many of these got no answer that is 200.
type Asked struct {
	At                  time.Time
	PerSecond, Unserved float64
}

// Run is a run of a policy, or of real pods.
type Run struct {
	Name   string
	Points []simulate.Point
}

// colors of the runs; the load is gray. They differ in lightness too, for those who do not see the colors.
var colors = []string{"#c2410c", "#0891b2", "#1e3a8a"}

const (
	loadColor     = "#9ca3af"
	unservedColor = "#b91c1c"
)

// axis is one of values, from 0 at the bottom of a panel.
type axis struct{ top, most float64 }

func (a axis) y(value float64) float64 { return a.top + panel*(1-min(value, a.most)/a.most) }

func (p *Picture) x(at time.Time) float64 {
	return left + (width-left-right)*float64(at.Sub(p.Shown.From))/float64(p.Shown.To.Sub(p.Shown.From))
}

// SVG draws it.
func (p *Picture) SVG() []byte {
	var w bytes.Buffer
	fmt.Fprintf(&w, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" font-family="sans-serif" font-size="12" fill="#111827">`+"\n", width, height)
	fmt.Fprintf(&w, `<title>%s</title><rect width="100%%" height="100%%" fill="#ffffff"/><text x="%g" y="24" font-size="16">%s</text>`+"\n", escape(p.Title), left, escape(p.Title))
	p.legend(&w)
	kp := axis{top, 9}
	p.frame(&w, kp, "Kp", 3)
	p.drawKp(&w, kp)
	second := top + panel + distance
	third := second + panel + distance
	if p.Asked != nil {
		p.drawPods(&w, second, "pods that are ready")
		p.drawAsked(&w, third)
	} else {
		p.drawPods(&w, second, "pods that are ready, and load in pods")
		p.drawRefused(&w, third)
	}
	p.times(&w, third+panel)
	w.WriteString("</svg>\n")
	return w.Bytes()
}

func ready(one simulate.Point) float64   { return float64(one.Ready) }
func load(one simulate.Point) float64    { return one.Load }
func refused(one simulate.Point) float64 { return 100 * one.Refused }

// drawPods draws the pods of each run, and the load of the first, which is the load of all.
func (p *Picture) drawPods(w *bytes.Buffer, at float64, title string) {
	a := p.axis(at, p.each(ready), p.each(load))
	p.frame(w, a, title, a.most/4)
	if len(p.Runs) > 0 && p.Asked == nil {
		p.line(w, a, loadColor, p.steps(p.Runs[0].Points, load))
	}
	for i, r := range p.Runs {
		p.line(w, a, colors[i%len(colors)], p.steps(r.Points, ready))
	}
}

func (p *Picture) drawRefused(w *bytes.Buffer, at float64) {
	a := p.axis(at, p.each(refused))
	p.frame(w, a, "refused, % of the work", a.most/4)
	for i, r := range p.Runs {
		p.line(w, a, colors[i%len(colors)], p.steps(r.Points, refused))
	}
}

func (p *Picture) drawAsked(w *bytes.Buffer, at float64) {
	var asked, unserved []step
	for _, one := range p.Asked {
		if p.has(one.At) {
			asked, unserved = append(asked, step{one.At, one.PerSecond}), append(unserved, step{one.At, one.Unserved})
		}
	}
	a := p.axis(at, asked)
	p.frame(w, a, "requests a second", a.most/4)
	p.line(w, a, loadColor, asked)
	p.line(w, a, unservedColor, unserved)
}

// step is the value of a figure from a time on.
type step struct {
	at    time.Time
	value float64
}

// steps of a figure in the shown time.
func (p *Picture) steps(points []simulate.Point, of func(simulate.Point) float64) (all []step) {
	for _, one := range points {
		if p.has(one.At) {
			all = append(all, step{one.At, of(one)})
		}
	}
	return all
}

// each is a figure of all runs.
func (p *Picture) each(of func(simulate.Point) float64) (all []step) {
	for _, r := range p.Runs {
		all = append(all, p.steps(r.Points, of)...)
	}
	return all
}

// axis is one for figures: up to the most of them, rounded up to a multiple of 4.
func (p *Picture) axis(at float64, figures ...[]step) axis {
	most := 1.
	for _, figure := range figures {
		for _, one := range figure {
			most = max(most, one.value)
		}
	}
	return axis{at, 4 * math.Ceil(most/4)}
}

func (p *Picture) has(at time.Time) bool {
	return !at.Before(p.Shown.From) && at.Before(p.Shown.To)
}

// legend names the colors, in a row under the title.
func (p *Picture) legend(w *bytes.Buffer) {
	x := left
	entry := func(color, name string) {
		fmt.Fprintf(w, `<rect x="%g" y="34" width="18" height="4" fill="%s"/><text x="%g" y="41">%s</text>`+"\n", x, color, x+24, escape(name))
		x += 48 + 7*float64(len(name))
	}
	for i, r := range p.Runs {
		entry(colors[i%len(colors)], r.Name)
	}
	if p.Asked == nil {
		entry(loadColor, "load")
		return
	}
	entry(loadColor, "requests")
	entry(unservedColor, "of these not answered, or with another status than 200")
}

// frame draws a panel with lines of values.
func (p *Picture) frame(w *bytes.Buffer, a axis, title string, each float64) {
	for value := 0.; value <= a.most; value += each {
		y := a.y(value)
		fmt.Fprintf(w, `<path d="M%g %.1fH%g" stroke="#e5e7eb"/><text x="%g" y="%.1f" text-anchor="end">%g</text>`+"\n", left, y, width-right, left-6, y+4, value)
	}
	fmt.Fprintf(w, `<text x="%g" y="%g" font-weight="bold">%s</text>`+"\n", left, a.top-6, escape(title))
}

// drawKp draws a bar for each three hours, darker from 5 on.
func (p *Picture) drawKp(w *bytes.Buffer, a axis) {
	for _, one := range p.Kp {
		if !p.has(one.From) {
			continue
		}
		color := "#a7f3d0"
		if one.Value >= 7 {
			color = "#b91c1c"
		} else if one.Value >= 5 {
			color = "#f59e0b"
		}
		from, to := p.x(one.From), min(p.x(one.To), width-right)
		fmt.Fprintf(w, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"/>`+"\n", from+0.5, a.y(one.Value), max(0, to-from-1), a.top+panel-a.y(one.Value), color)
	}
}

// line draws a figure as steps.
func (p *Picture) line(w *bytes.Buffer, a axis, color string, figure []step) {
	var path strings.Builder
	last := math.NaN()
	for _, one := range figure {
		switch y := a.y(one.value); {
		case path.Len() == 0:
			fmt.Fprintf(&path, "M%.1f %.1f", p.x(one.at), y)
			last = y
		case y != last:
			fmt.Fprintf(&path, "H%.1fV%.1f", p.x(one.at), y)
			last = y
		}
	}
	if path.Len() > 0 {
		fmt.Fprintf(w, `<path d="%sH%g" fill="none" stroke="%s" stroke-width="1.5"/>`+"\n", path.String(), width-right, color)
	}
}

// times labels the axis of time every six hours, and days in full.
func (p *Picture) times(w *bytes.Buffer, bottom float64) {
	for at := p.Shown.From.Truncate(6 * time.Hour); !at.After(p.Shown.To); at = at.Add(6 * time.Hour) {
		if at.Before(p.Shown.From) {
			continue
		}
		label := at.Format("15:04")
		if at.Hour() == 0 {
			label = at.Format("2 Jan")
		}
		x := p.x(at)
		fmt.Fprintf(w, `<path d="M%.1f %gV%g" stroke="#e5e7eb"/><text x="%.1f" y="%g" text-anchor="middle">%s</text>`+"\n", x, top, bottom, x, bottom+18, label)
	}
	fmt.Fprintf(w, `<text x="%g" y="%g" text-anchor="end">time, UTC</text>`+"\n", width-right, bottom+36)
}

func escape(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text)) // to memory
	return b.String()
}
