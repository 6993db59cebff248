// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/sender"
)

// stormCameraManifest declares a camera that sends through the storm.
//
//go:embed stormcamera.yaml
var stormCameraManifest string

const (
	stormCamera = "storm-camera"
	// stormFrames at stormFrameRate take as long as all of it, so gateways come and go while objects arrive.
	stormFrames, stormFrameRate = 440, 2
	// So many more frames, so many a second, come with the crowd, and take as long as it stays.
	crowdFrames, crowdFrameRate = 324, 6
	stormFrameSize              = 16 << 10
)

// filming is the camera at work.
type filming struct {
	d       *demo
	sent    sent
	address string
	// reports are of the senders that were started, and ended has what became of each, once.
	reports []string
	ended   chan error
}

// film declares the camera and has it send. Its frames are of this run only, so that what an earlier one sent is not taken for them.
func (d *demo) film(ctx context.Context) (*filming, error) {
	f := &filming{d: d, sent: sent{frames: map[wire.Digest]string{}}, ended: make(chan error, 2)}
	if err := f.write(stormFolder, stormFrames); err != nil {
		return nil, err
	}
	if err := f.write(crowdFolder, crowdFrames); err != nil {
		return nil, err
	}
	manifest := filepath.Join(d.dir, "storm-camera.yaml")
	if err := os.WriteFile(manifest, []byte(stormCameraManifest), 0o644); err != nil {
		return nil, err
	}
	if err := d.show(ctx, d.kubectl, "apply", "-n", namespace, "-f", manifest); err != nil {
		return nil, err
	}
	if _, err := d.step(ctx, "storm camera ready", d.kubectl, "-n", namespace, "wait", "--for=condition=Ready", "--timeout=5m", "instrument/"+stormCamera); err != nil {
		return nil, err
	}
	var err error
	if f.address, err = d.addressOf(ctx, stormCamera); err != nil {
		return nil, err
	}
	f.send(ctx, stormFolder, stormFrameRate)
	return f, nil
}

// The folders of the demo in which frames are.
const stormFolder, crowdFolder = "storm", "storm-crowd"

// write makes frames in a folder, and removes what an earlier run left.
func (f *filming) write(folder string, frames int) error {
	dir := filepath.Join(f.d.dir, folder)
	for _, old := range []string{dir, f.reportOf(folder)} {
		if err := os.RemoveAll(old); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	began := time.Now().UTC()
	for i := range frames {
		name := fmt.Sprintf("%s-%04d.txt", folder, i)
		body := bytes.Repeat(fmt.Appendf(nil, "%s of %s\n", name, began.Format(time.RFC3339Nano)), stormFrameSize/48)
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, body, 0o644); err != nil {
			return err
		}
		f.sent.frames[sha256.Sum256(body)] = file
	}
	return nil
}

func (f *filming) reportOf(folder string) string {
	return filepath.Join(f.d.dir, folder+"-receipts.jsonl")
}

// send begins to send a folder, so many frames a second.
func (f *filming) send(ctx context.Context, folder string, rate int) {
	report := f.reportOf(folder)
	f.reports = append(f.reports, report)
	argv := []string{f.d.substorm, "send", "--quiet", "--to", f.address, "--rate", strconv.Itoa(rate), "--report", report, filepath.Join(f.d.dir, folder)}
	fmt.Printf("\n$ %s &\n\n", f.d.spell(argv))
	go func() {
		_, err := f.d.output(ctx, argv...)
		f.ended <- err
	}()
}

// hurry has the camera send more, once.
func (f *filming) hurry(ctx context.Context) {
	if len(f.reports) == 1 {
		f.send(ctx, crowdFolder, crowdFrameRate)
	}
}

// receipts are how many the senders have.
func (f *filming) receipts() (n int, err error) {
	for _, report := range f.reports {
		lines, err := os.ReadFile(report)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return 0, err
		}
		for line := range bytes.Lines(lines) {
			var result sender.Result
			if json.Unmarshal(line, &result) == nil && result.Outcome == sender.Received { // the last line may not be whole yet
				n++
			}
		}
	}
	return n, nil
}

// nothingLost waits until the senders are done, and the archive lists each of their frames.
func (d *demo) nothingLost(ctx context.Context, f *filming) error {
	for range f.reports {
		select {
		case err := <-f.ended:
			if err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	n, err := f.receipts()
	if err != nil {
		return err
	}
	if n != len(f.sent.frames) {
		return fmt.Errorf("the camera has %d receipts for %d frames: look at %s", n, len(f.sent.frames), strings.Join(f.reports, ", "))
	}
	if err := d.waitListed(ctx, f.sent); err != nil {
		return err
	}
	d.p.Line("the camera sent %d frames meanwhile, has a receipt for each of them, and the archive lists them all", n)
	return nil
}
