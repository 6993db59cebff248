// SPDX-License-Identifier: Apache-2.0

package status

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/dustin/go-humanize"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// print writes the report for people.
func (r Report) print(w io.Writer) {
	where := "namespace " + r.namespace
	if r.namespace == "" {
		where = "any namespace"
	}
	if len(r.Sites)+len(r.Gateways)+len(r.Instruments) == 0 {
		fmt.Fprintf(w, "No Site in %s: substorm get site -A lists them, -n chooses the namespace.\n", where)
		return
	}
	for _, section := range []func(io.Writer){r.printSites, r.printGateways, r.printInstruments, r.printFeedServers, r.printFeeds, r.printConsumers, r.printMirrors, r.printPullers} {
		var text strings.Builder
		t := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
		section(t)
		if _ = t.Flush(); text.Len() > 0 {
			fmt.Fprintln(w, text.String())
		}
	}
	r.printArchives(w)
	r.printStale(w)
	r.printProblems(w)
}

// name is how an object is called: with its namespace where several are shown.
func (r *Report) name(namespace, name string) string {
	if r.namespace == "" {
		return namespace + "/" + name
	}
	return name
}

func (r Report) printSites(w io.Writer) {
	fmt.Fprintln(w, "SITE\tCODE\tREADY\tOBJECT STORE\tJETSTREAM\tREGISTRY")
	for _, s := range r.Sites {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d\n", r.name(s.Namespace, s.Name), s.Code, s.Ready, s.ObjectStore, s.JetStream, s.Revision)
	}
}

func (r Report) printGateways(w io.Writer) {
	if len(r.Gateways) == 0 {
		fmt.Fprintln(w, "No gateway: nothing is received. Apply an IngestGateway.")
		return
	}
	fmt.Fprintln(w, "GATEWAY\tSITE\tREADY\tPODS\tDATAPATH\tREGISTRY")
	for _, g := range r.Gateways {
		revision := fmt.Sprint(g.Revision)
		if g.Behind > 0 {
			revision += fmt.Sprintf(" (%d behind)", g.Behind)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%d/%d\t%s\t%s\n", r.name(g.Namespace, g.Name), g.Site, g.Ready,
			g.PodsReady, g.PodsAsked, cmp.Or(string(g.Datapath), "-"), revision)
	}
}

func (r Report) printInstruments(w io.Writer) {
	if len(r.Instruments) == 0 {
		fmt.Fprintln(w, "No instrument: apply one (kubectl explain instrument.spec).")
		return
	}
	fmt.Fprintln(w, "INSTRUMENT\tTYPE\tSTATE\tREADY\tFLOWING\tREASON\tLAST RECEIVED\tTODAY\tSEND TO")
	for _, i := range r.Instruments {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", r.name(i.Namespace, i.Name), i.Type, i.State, i.Ready,
			i.Flowing, i.Reason, r.last(i), i.today(), cmp.Or(strings.Join(i.Addresses, ", "), "-"))
	}
}

// printStale names the Sites whose figures are not current.
func (r Report) printStale(w io.Writer) {
	for _, s := range r.Sites {
		if s.FiguresStale != "" {
			fmt.Fprintf(w, "What instruments of site %s sent is as of up to ten minutes ago: %s.\n", r.name(s.Namespace, s.Name), s.FiguresStale)
		}
	}
}

// statusRounding is what lastReceivedTime is rounded down to in the status.
const statusRounding = 10 * time.Minute

// last says when something was received, as exact as it is known; that data flows says more.
func (r *Report) last(i Instrument) string {
	if i.Flowing == metav1.ConditionTrue {
		return "in its cadence"
	}
	if i.LastReceivedTime.IsZero() {
		return "never"
	}
	at := i.LastReceivedTime.UTC()
	if !at.Equal(at.Truncate(statusRounding)) {
		return at.Format("2006-01-02 15:04:05Z")
	}
	return at.Format("2006-01-02 15:04") + " to " + at.Add(statusRounding).Format("15:04Z")
}

// today sums up what was received this UTC day.
func (i *Instrument) today() string {
	var parts []string
	if i.Objects > 0 {
		parts = append(parts, fmt.Sprintf("%d objects", i.Objects))
	}
	if i.Datagrams > 0 {
		parts = append(parts, fmt.Sprintf("%d datagrams", i.Datagrams))
	}
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(append(parts, humanize.IBytes(uint64(i.Bytes))), ", ")
}

func (r Report) printProblems(w io.Writer) {
	if len(r.Sites) == 0 {
		fmt.Fprintln(w, "There is no Site for these: apply one.")
	}
	for _, group := range groupProblems(r.Problems) {
		r.printProblem(w, "!", group)
	}
	if r.Fine {
		fmt.Fprintln(w, "All is well.")
	}
	for _, group := range groupProblems(r.Notes) {
		r.printProblem(w, "note:", group)
	}
}

// shownTogether is how many objects with the same problem are named.
const shownTogether = 5

// groupProblems groups problems of one kind of object with one condition and reason.
func groupProblems(problems []Problem) [][]Problem {
	var groups [][]Problem
	at := map[string]int{}
	for _, p := range problems {
		kind, _, _ := strings.Cut(p.Object, "/")
		key := kind + " " + p.Condition + " " + p.Reason
		i, ok := at[key]
		if !ok {
			i, at[key] = len(groups), len(groups)
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], p)
	}
	return groups
}

// printProblem prints what several objects have in common, with the message of the first.
func (r Report) printProblem(w io.Writer, mark string, group []Problem) {
	first := group[0]
	kind, _, _ := strings.Cut(first.Object, "/")
	var names []string
	for _, p := range group[:min(len(group), shownTogether)] {
		_, name, _ := strings.Cut(p.Object, "/")
		names = append(names, r.name(p.Namespace, name))
	}
	more := ""
	if n := len(group) - len(names); n > 0 {
		more = fmt.Sprintf(" and %d more", n)
	}
	// The messages and times of the other objects may differ from those of the first one.
	if slices.ContainsFunc(group, func(p Problem) bool { return p.Message != first.Message || !p.Since.Equal(&first.Since) }) {
		fmt.Fprintf(w, "%s %s %s%s: %s is %s (%s)\n", mark, kind, strings.Join(names, ", "), more, first.Condition, first.Status, first.Reason)
		for i, name := range names {
			fmt.Fprintf(w, "  %s%s: %s\n", name, r.lasting(group[i]), group[i].Message)
		}
		return
	}
	fmt.Fprintf(w, "%s %s %s%s: %s is %s (%s%s)\n  %s\n", mark, kind, strings.Join(names, ", "), more,
		first.Condition, first.Status, first.Reason, r.lasting(first), first.Message)
}

// lasting says for how long a problem has been there.
func (r Report) lasting(p Problem) string {
	if p.Since.IsZero() {
		return ""
	}
	return " for " + r.since(&p.Since)
}
