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
	stormFrameSize              = 16 << 10
)

// filming is the camera at work.
type filming struct {
	sent   sent
	report string
	// ended has what became of the sender, once.
	ended chan error
}

// film declares the camera and has it send. Its frames are of this run only, so that what an earlier one sent is not taken for them.
func (d *demo) film(ctx context.Context) (*filming, error) {
	dir := filepath.Join(d.dir, "storm")
	f := &filming{sent: sent{frames: map[wire.Digest]string{}}, report: filepath.Join(d.dir, "storm-receipts.jsonl"), ended: make(chan error, 1)}
	for _, old := range []string{dir, f.report} {
		if err := os.RemoveAll(old); err != nil {
			return nil, err
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	began := time.Now().UTC()
	for i := range stormFrames {
		body := bytes.Repeat(fmt.Appendf(nil, "frame %d of %s\n", i, began.Format(time.RFC3339Nano)), stormFrameSize/48)
		file := filepath.Join(dir, fmt.Sprintf("%04d.txt", i))
		if err := os.WriteFile(file, body, 0o644); err != nil {
			return nil, err
		}
		f.sent.frames[sha256.Sum256(body)] = file
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
	address, err := d.addressOf(ctx, stormCamera)
	if err != nil {
		return nil, err
	}
	argv := []string{d.substorm, "send", "--quiet", "--to", address, "--rate", strconv.Itoa(stormFrameRate), "--report", f.report, dir}
	fmt.Printf("\n$ %s &\n", d.spell(argv))
	go func() {
		_, err := d.output(ctx, argv...)
		f.ended <- err
	}()
	return f, nil
}

// receipts are how many the sender has.
func (f *filming) receipts() (n int, err error) {
	lines, err := os.ReadFile(f.report)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	for line := range bytes.Lines(lines) {
		var is sender.Result
		if json.Unmarshal(line, &is) == nil && is.Outcome == sender.Received { // the last line may not be whole yet
			n++
		}
	}
	return n, nil
}

// nothingLost waits until the sender is done, and the archive lists each of its frames.
func (d *demo) nothingLost(ctx context.Context, f *filming) error {
	select {
	case err := <-f.ended:
		if err != nil {
			return err
		}
	case <-ctx.Done():
		return ctx.Err()
	}
	n, err := f.receipts()
	if err != nil {
		return err
	}
	if n != stormFrames {
		return fmt.Errorf("the camera has %d receipts for %d frames: look at %s", n, stormFrames, f.report)
	}
	if err := d.waitListed(ctx, f.sent); err != nil {
		return err
	}
	d.p.Line("the camera sent %d frames meanwhile, has a receipt for each of them, and the archive lists them all", n)
	return nil
}
