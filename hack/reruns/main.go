// SPDX-License-Identifier: Apache-2.0

// Command reruns prints each test that failed and passed when it was run once more: the load of the machine at the failure, and the logs of
// both runs. It exits with 1 if there are more of them than -max: a machine that is slow for a moment fails one test.
//
//	go run ./hack/reruns -load LOAD -max 1 FILE...
//
// The files have the events of `go test -json`, as gotestsum writes them with --jsonfile. The file of -load has a line for each few seconds:
// seconds since 1970, then what /proc/loadavg says.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
)

func main() {
	load := flag.String("load", "", "file with the load of the machine")
	max := flag.Int("max", 1, "how many tests may need a second run")
	flag.Parse()
	if err := run(os.Stdout, *load, *max, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "reruns:", err)
		os.Exit(1)
	}
}

func run(out io.Writer, load string, max int, files []string) error {
	all, err := readAll(files)
	if err != nil {
		return err
	}
	loads, err := readLoads(load)
	if err != nil {
		return err
	}
	count := 0
	for _, t := range all {
		if !t.passedLater() {
			continue
		}
		count++
		fmt.Fprintf(out, "\n== %s failed, and passed when it was run once more. Fix it all the same.\n", t.name)
		for n, r := range t.runs {
			fmt.Fprintf(out, "-- run %d: %s; load %s\n%s", n+1, r.result, loads.at(r.ended), r.log.String())
		}
	}
	if count > max {
		return fmt.Errorf("%d tests passed only when they were run once more: too many to blame a busy machine", count)
	}
	return nil
}

func readAll(files []string) (all []*test, err error) {
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		tests, err := readEvents(f)
		if err := errors.Join(err, f.Close()); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, tests...)
	}
	return all, nil
}
