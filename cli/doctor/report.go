// SPDX-License-Identifier: Apache-2.0

//go:build linux

package doctor

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/substorm/substorm/cli/output"
)

// ErrFailed: a check failed.
var ErrFailed = errors.New("this computer cannot run the Site as it should")

// Result of a check.
type Result string

// The values of Result.
const (
	OK      Result = "OK"
	Warning Result = "WARNING"
	Failed  Result = "FAILED"
)

// Check is one thing that was looked at.
type Check struct {
	Check  string `json:"check"`
	Result Result `json:"result"`
	// Found is what was measured, and Advice what to do next; empty where all is well.
	Found  string `json:"found"`
	Advice string `json:"advice,omitempty"`
}

// Report is what `substorm doctor` says.
type Report struct {
	// Fine is true where no check failed and none warns.
	Fine    bool   `json:"fine"`
	DataDir string `json:"dataDir"`
	// Process is the process of the Site that runs in the data folder, 0 if none does.
	Process int     `json:"process,omitempty"`
	Checks  []Check `json:"checks"`
}

func fine(check, found string, args ...any) Check {
	return Check{check, OK, fmt.Sprintf(found, args...), ""}
}

func warning(check, advice, found string, args ...any) Check {
	return Check{check, Warning, fmt.Sprintf(found, args...), advice}
}

func failed(check, advice, found string, args ...any) Check {
	return Check{check, Failed, fmt.Sprintf(found, args...), advice}
}

// print writes the report for people: a line for each check.
func (r *Report) print(w io.Writer) {
	t := output.Columns(w, "RESULT\tCHECK\tFOUND")
	for _, c := range r.Checks {
		said := c.Found
		if c.Advice != "" {
			said += ": " + c.Advice
		}
		fmt.Fprintf(t, "%s\t%s\t%s\n", c.Result, c.Check, strings.ReplaceAll(said, "\n", "; "))
	}
	_ = t.Flush() // to memory
}

func (r *Report) count(result Result) (n int) {
	for _, c := range r.Checks {
		if c.Result == result {
			n++
		}
	}
	return n
}

// verdict is an error where something failed.
func (r *Report) verdict() error {
	if n := r.count(Failed); n > 0 {
		return fmt.Errorf("%w: %d of %d checks failed, and %d warn", ErrFailed, n, len(r.Checks), r.count(Warning))
	}
	return nil
}
