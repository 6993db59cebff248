// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/substorm/substorm/cli/archive"
	"github.com/substorm/substorm/internal/wire"
)

// list returns what `substorm archive ls` lists of an instrument.
func (l *lab) list(t testing.TB, instrument string) []wire.Notice {
	t.Helper()
	return jsonLines[wire.Notice](t, l.archive(t, "ls", instrument))
}

// archive asks for what the archive knows of an instrument, as JSON. While servers of NATS choose a leader the command cannot know.
func (l *lab) archive(t testing.TB, verb, instrument string) (out string) {
	t.Helper()
	eventually(t, func() (err error) {
		out, err = l.output(l.substorm, "archive", verb, "--site", "demo", "-n", namespace, "--instrument", instrument, "-o", "json")
		return err
	})
	return out
}

// digests returns the digests of all objects of an instrument, sorted.
func (l *lab) digests(t testing.TB, instrument string) []string {
	t.Helper()
	var all []string
	for _, n := range l.list(t, instrument) {
		all = append(all, n.Digest.String())
	}
	slices.Sort(all)
	return all
}

// ledger returns what `substorm archive ledger` says of an instrument, days summed up.
func (l *lab) ledger(t testing.TB, instrument string) archive.Ledger {
	t.Helper()
	var sum archive.Ledger
	for _, day := range jsonLines[archive.Ledger](t, l.archive(t, "ledger", instrument)) {
		sum.Received, sum.Stored = sum.Received.Plus(day.Received), sum.Stored.Plus(day.Stored)
		sum.Announced, sum.Duplicates = sum.Announced.Plus(day.Announced), sum.Duplicates.Plus(day.Duplicates)
		sum.Writers = append(sum.Writers, day.Writers...)
		sum.Differences = append(sum.Differences, day.Differences...)
	}
	return sum
}

// stale says whether a gateway's columns are shown as no longer current.
func stale(ledger archive.Ledger, gateway string) error {
	for _, w := range ledger.Writers {
		if w.Writer == gateway && !w.Stale {
			return fmt.Errorf("the columns of %s are shown as current", gateway)
		}
	}
	if !slices.ContainsFunc(ledger.Writers, func(w archive.WriterColumns) bool { return w.Writer == gateway }) {
		return fmt.Errorf("the ledger has no columns of %s", gateway)
	}
	return nil
}

func jsonLines[T any](t testing.TB, out string) []T {
	t.Helper()
	var all []T
	for d := json.NewDecoder(strings.NewReader(out)); d.More(); {
		var v T
		if err := d.Decode(&v); err != nil {
			t.Fatalf("%v in:\n%s", err, out)
		}
		all = append(all, v)
	}
	return all
}
