// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"bufio"
	"html"
	"strconv"

	"github.com/substorm/substorm/internal/wire"
)

const style = `body{font:14px/1.5 system-ui,sans-serif;margin:2rem;color:#222;background:#fff}` +
	`h1{font-size:1.2rem}table{border-collapse:collapse}td,th{padding:.1rem 1.5rem .1rem 0;text-align:left}` +
	`td+td{font-variant-numeric:tabular-nums;color:#555}.n{text-align:right}footer{margin-top:2rem;color:#555}`

// pageTime is how pages show a time, in UTC.
const pageTime = "2006-01-02 15:04:05"

// writeHTML writes the directory for people, and for programs that walk links: each href is one
// name, relative to the page. A page names each thing once and links to nothing else, so that a
// client that follows all links fetches each thing once.
func (p *page) writeHTML(w *bufio.Writer) error {
	title := html.EscapeString(p.title())
	fprint(w, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n",
		`<meta name="viewport" content="width=device-width">`, "\n<title>", title, "</title>\n<style>", style, "</style>\n</head>\n<body>\n<h1>", title, "</h1>\n",
		"<table>\n<tr><th>Name</th><th class=\"n\">Bytes</th><th>Observed (UTC)</th><th>Received (UTC)</th></tr>\n")
	if p.target.instrument != "" {
		fprint(w, "<tr><td><a href=\"../\">../</a></td></tr>\n")
	}
	for _, f := range p.folders {
		fprint(w, `<tr><td><a href="`, html.EscapeString(escape(f.Name)), `/">`, html.EscapeString(f.Name), "/</a></td>")
		if f.Objects >= 0 {
			fprint(w, `<td class="n">`, strconv.FormatInt(f.Objects, 10), " objects</td>")
		}
		fprint(w, "</tr>\n")
	}
	var number [64]byte
	for o, err := range p.objects {
		if err != nil {
			return err
		}
		fprint(w, `<tr><td><a href="`, html.EscapeString(escape(o.Name)), `">`, html.EscapeString(o.Name), `</a></td><td class="n">`)
		_, _ = w.Write(strconv.AppendInt(number[:0], o.Size, 10))
		fprint(w, "</td><td>")
		if from, _, told := o.ObservedSpan(); told {
			_, _ = w.Write(from.UTC().AppendFormat(number[:0], pageTime))
		}
		fprint(w, "</td><td>")
		_, _ = w.Write(o.ReceivedAt.UTC().AppendFormat(number[:0], pageTime))
		fprint(w, "</td></tr>\n")
	}
	fprint(w, "</table>\n")
	p.writeFooter(w)
	fprint(w, "</body>\n</html>\n")
	return nil
}

// writeFooter says whose the instrument is, and what its rights are.
func (p *page) writeFooter(w *bufio.Writer) {
	if p.instrument == nil || p.instrument.Origin == "" && p.instrument.Rights == nil {
		return
	}
	r := p.instrument.Rights
	if r == nil {
		r = &wire.RightsEntry{}
	}
	fprint(w, "<footer>")
	link := func(before, rel, url, text string) {
		if text == "" {
			return
		}
		fprint(w, "<p>", before)
		if url != "" {
			fprint(w, `<a rel="`, rel, `" href="`, html.EscapeString(url), `">`, html.EscapeString(text), "</a></p>\n")
		} else {
			fprint(w, html.EscapeString(text), "</p>\n")
		}
	}
	link("Mirrored from site ", "", "", p.instrument.Origin)
	link("License: ", "license", r.LicenseURL(), r.License)
	link("Cite as: ", "cite-as", r.CiteURL(), r.DOI)
	link("", "", "", r.Citation)
	link("", "", "", r.Credit)
	fprint(w, "</footer>\n")
}
