// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/substorm/substorm/cli/archive"
	"github.com/substorm/substorm/cli/status"
	"github.com/substorm/substorm/internal/wire"
)

// verifyArchive asks whether data flows, waits until the archive lists everything that was sent, shows it, and compares the bytes.
func (d *demo) verifyArchive(ctx context.Context, s sent) error {
	if err := d.lookAtFlow(ctx); err != nil {
		return err
	}
	if err := d.waitListed(ctx, s); err != nil {
		return err
	}
	for _, argv := range [][]string{
		{d.kubectl, "get", "site,ingestgateway,instrument"},
		{d.substorm, "archive", "ls", "--day", "today"},
		{d.substorm, "archive", "ledger", "--day", "today"},
	} {
		if err := d.show(ctx, argv...); err != nil {
			return err
		}
	}
	if err := d.lookAtStreams(ctx, s); err != nil {
		return err
	}
	if err := d.compareFrames(ctx, s); err != nil {
		return err
	}
	return d.lookOverHTTP(ctx, s)
}

// lookAtFlow asks while data is in its cadence: nothing more is sent, and it is overdue two minutes after.
func (d *demo) lookAtFlow(ctx context.Context) error {
	_, err := d.step(ctx, "kubectl says that data flows",
		d.kubectl, "-n", namespace, "wait", "--recursive=false", "--for=condition=DataFlowing", "--timeout=2m", "-f", "docs/samples/")
	if err != nil {
		return err
	}
	if err := d.waitFigures(ctx); err != nil {
		return err
	}
	if err := d.waitWell(ctx); err != nil {
		return err
	}
	return d.show(ctx, d.substorm, "status")
}

// waitWell waits until `substorm status` finds all as it should be: what was declared a moment ago may not be ready everywhere.
func (d *demo) waitWell(ctx context.Context) (err error) {
	step := d.p.Step("substorm status says that all is well")
	defer func() { step.Done(err) }()
	return await(ctx, func() error {
		_, err := d.output(ctx, d.substorm, "status")
		return err
	})
}

func (d *demo) waitListed(ctx context.Context, s sent) (err error) {
	step := d.p.Step("the archive lists what was sent")
	defer func() { step.Done(err) }()
	return await(ctx, func() error {
		missing, err := d.missing(ctx, s)
		if err != nil || missing == "" {
			return err
		}
		step.Detail("%s to come", missing)
		return fmt.Errorf("the archive lacks %s", missing)
	})
}

// missing says what was sent and is not listed yet, or "". Columns of the ledger that differ count as missing.
func (d *demo) missing(ctx context.Context, s sent) (string, error) {
	listed, err := d.list(ctx)
	if err != nil {
		return "an answer", err
	}
	var missing []string
	frames := 0
	for digest := range s.frames {
		if _, ok := listed.objects[digest]; !ok {
			frames++
		}
	}
	if frames > 0 {
		missing = append(missing, fmt.Sprintf("%d frames", frames))
	}
	if want := s.before + s.datagrams; listed.datagrams < want {
		missing = append(missing, fmt.Sprintf("%d datagrams", want-listed.datagrams))
	}
	differences, err := d.differences(ctx)
	if len(missing) == 0 && len(differences) > 0 {
		missing = differences
	}
	return strings.Join(missing, ", "), err
}

// listed is what the archive's manifests hold: objects, and datagrams of the magnetometer.
type listed struct {
	objects   map[wire.Digest]wire.Notice
	datagrams uint64
}

func (d *demo) list(ctx context.Context) (listed, error) {
	l := listed{objects: map[wire.Digest]wire.Notice{}}
	out, err := d.output(ctx, d.substorm, "archive", "ls", "-o", "json")
	if err != nil {
		return l, err
	}
	for line := range strings.Lines(out) {
		n, err := wire.Decode[wire.Notice]([]byte(line))
		if err != nil {
			return l, err
		}
		switch {
		case n.Segment == nil:
			l.objects[n.Digest] = n
		case n.Instrument == magnetometer:
			l.datagrams += n.Segment.Datagrams
		}
	}
	return l, nil
}

// waitFigures waits until `substorm status` has what the ledger has of each Instrument: gateways report both every two
// seconds, one after the other. The ledger also has rows of unknown senders and of Instruments that were deleted.
func (d *demo) waitFigures(ctx context.Context) (err error) {
	step := d.p.Step("substorm status has the figures of the ledger")
	defer func() { step.Done(err) }()
	return await(ctx, func() error {
		differ, err := d.figuresThatDiffer(ctx)
		if err != nil || differ == "" {
			return err
		}
		step.Detail("%s", differ)
		return fmt.Errorf("they differ: %s", differ)
	})
}

func (d *demo) figuresThatDiffer(ctx context.Context) (string, error) {
	ledgers, err := d.ledger(ctx, "--day", "today")
	if err != nil {
		return "", err
	}
	out, err := d.output(ctx, d.substorm, "status", "-o", "json")
	if err != nil {
		return "", err
	}
	var report status.Report
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		return "", fmt.Errorf("read the status: %w", err)
	}
	var differ []string
	for _, i := range report.Instruments {
		for _, l := range ledgers {
			if l.Instrument == i.Name && (int64(l.Received.Objects) != i.Objects || int64(l.Received.Datagrams) != i.Datagrams) {
				differ = append(differ, fmt.Sprintf("%s has %d objects and %d datagrams in the ledger, %d and %d in the status",
					i.Name, l.Received.Objects, l.Received.Datagrams, i.Objects, i.Datagrams))
			}
		}
	}
	return strings.Join(differ, "; "), nil
}

// differences between the columns of the ledger.
func (d *demo) differences(ctx context.Context) ([]string, error) {
	ledgers, err := d.ledger(ctx)
	var differences []string
	for _, l := range ledgers {
		for _, difference := range l.Differences {
			differences = append(differences, l.Instrument+": "+difference)
		}
	}
	return differences, err
}

// ledger is what `substorm archive ledger` says of each instrument and day.
func (d *demo) ledger(ctx context.Context, args ...string) ([]archive.Ledger, error) {
	out, err := d.output(ctx, append([]string{d.substorm, "archive", "ledger", "-o", "json"}, args...)...)
	if err != nil {
		return nil, err
	}
	var ledgers []archive.Ledger
	decoder := json.NewDecoder(strings.NewReader(out))
	for {
		var l archive.Ledger
		if err := decoder.Decode(&l); errors.Is(err, io.EOF) {
			return ledgers, nil
		} else if err != nil {
			return nil, fmt.Errorf("read the ledger: %w", err)
		}
		ledgers = append(ledgers, l)
	}
}

// compareFrames fetches every frame and hashes what came, whatever the archive says of it.
func (d *demo) compareFrames(ctx context.Context, s sent) error {
	listed, err := d.list(ctx)
	if err != nil {
		return err
	}
	for digest, file := range s.frames {
		fetched := filepath.Join(d.dir, "fetched-"+filepath.Base(file))
		if err := os.RemoveAll(fetched); err != nil {
			return err
		}
		if _, err := d.output(ctx, d.substorm, "archive", "get", listed.objects[digest].Key, "--file", fetched); err != nil {
			return err
		}
		got, err := os.ReadFile(fetched)
		if err != nil {
			return err
		}
		want, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if sum := wire.Digest(sha256.Sum256(got)); sum != digest || !bytes.Equal(got, want) {
			return fmt.Errorf("%s: the bucket holds %d bytes with SHA-256 %s, %d bytes with %s were sent", file, len(got), sum, len(want), digest)
		}
		d.p.Line("%s: sent and fetched from the bucket, both SHA-256 %s", filepath.Base(file), digest)
	}
	return nil
}

func (d *demo) sayMore() error {
	fmt.Printf(`
Look around:
  eval "$(go run ./hack/cluster --name %s env)"; PATH=$PWD/.demo/bin:$PATH
  kubectl get site,ingestgateway,feedserver,instrument -o wide
  kubectl describe instrument allsky-camera
  kubectl substorm status
  substorm archive ls -o wide
  substorm archive ledger
  address=$(kubectl get instrument allsky-camera -o jsonpath='{.status.listeners[0].addresses[0].address}')
  substorm send --to $address ANY-FILE
  kubectl delete pod demo-0 && substorm send --to $address ANY-FILE    # no receipt before the next pod is ready
  kubectl explain instrument.spec
  kubectl port-forward service/%s 8080:80 &    # the archive, as people, robots and HAPI clients see it
  curl http://127.0.0.1:8080/archive/; wget -r -N -np http://127.0.0.1:8080/archive/allsky-camera/
  curl "http://127.0.0.1:8080/hapi/info?dataset=magnetometer/seconds"
  curl -O http://127.0.0.1:8080/bundle/allsky-camera.tar; curl http://127.0.0.1:8080/atom/allsky-camera.xml
  substorm archive verify; substorm archive report --day today; substorm archive gaps; substorm archive inspect SHA-256-OR-NAME

Nothing sends any more: once an Instrument's data is late by two of its cadences, kubectl says so (Overdue). make demo
sends again, make demo-down removes all of it.
`, clusterName, feedServers)
	return nil
}
