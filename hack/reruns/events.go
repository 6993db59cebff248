// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"io"
	"strings"
	"time"
)

// event is a line of `go test -json` (cmd/test2json).
type event struct {
	Time                          time.Time
	Action, Package, Test, Output string
}

// test is one with all of its subtests, and each run of it, in order.
type test struct {
	name string
	runs []*testRun
}

// testRun is one run of a test. Result is "pass", "fail" or "skip"; empty for one that was cut off.
type testRun struct {
	result string
	ended  time.Time
	log    strings.Builder
}

// passedLater says whether the first run of a test failed and the last one passed.
func (t *test) passedLater() bool {
	return len(t.runs) > 1 && t.runs[0].result == "fail" && t.runs[len(t.runs)-1].result == "pass"
}

// readEvents returns the tests of a file, in the order in which they began.
func readEvents(from io.Reader) (all []*test, err error) {
	known := map[string]*test{}
	for events := json.NewDecoder(from); ; {
		var e event
		if err := events.Decode(&e); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		if e.Test == "" {
			continue
		}
		root, _, isSub := strings.Cut(e.Test, "/")
		name := e.Package + " " + root
		t := known[name]
		if t == nil {
			t = &test{name: name}
			known[name], all = t, append(all, t)
		}
		t.take(e, isSub)
	}
}

func (t *test) take(e event, isSub bool) {
	if e.Action == "run" && !isSub {
		t.runs = append(t.runs, &testRun{})
	}
	if len(t.runs) == 0 {
		return
	}
	r := t.runs[len(t.runs)-1]
	switch e.Action {
	case "output":
		r.log.WriteString(e.Output)
	case "pass", "fail", "skip":
		if !isSub {
			r.result, r.ended = e.Action, e.Time
		}
	}
	if r.result == "pass" && len(t.runs) == 1 { // its log is not printed
		r.log.Reset()
	}
}
