// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/substorm/substorm/hack/sampledata"
)

// The addresses to which the instruments of docs/samples/try send, and their intervals.
const (
	cameraAddress       = "127.0.0.1:30101"
	magnetometerAddress = "127.0.0.1:30102"
	picturesURL         = "http://127.0.0.1:30103/in/allsky-picture/"
	cameraEvery         = 20 * time.Second
	magnetometerEvery   = time.Second
	// betweenOld lines: a socket's buffer holds some hundred.
	betweenOld = time.Millisecond
)

// send has all instruments send until ctx ends.
func (t *try) send(ctx context.Context, data sampledata.Data) {
	if !t.ready(ctx) {
		return
	}
	t.p.Line("instruments: %s", data.What)
	if t.frame(ctx, data.Frames[0]) {
		t.p.Line("first frame receipted %.0f s after the start", time.Since(t.began).Seconds())
	}
	var all sync.WaitGroup
	all.Go(func() { t.camera(ctx, data.Frames) })
	all.Go(func() { t.magnetometer(ctx, data.Lines) })
	all.Go(func() { t.pictures(ctx) })
	all.Wait()
}

// ready waits until the page answers.
func (t *try) ready(ctx context.Context) bool {
	for ctx.Err() == nil {
		if page, err := get(ctx, t.url+"/"); err == nil {
			_ = page.Close()
			return true
		}
		pause(ctx, 100*time.Millisecond)
	}
	return false
}

// camera sends a frame after the other, from the second one on.
func (t *try) camera(ctx context.Context, frames []string) {
	for i := 1; ; i++ {
		pause(ctx, cameraEvery)
		if ctx.Err() != nil {
			return
		}
		t.frame(ctx, frames[i%len(frames)])
	}
}

// frame sends one as a camera's computer would, and is true once that has a receipt: substorm send sends again until then.
func (t *try) frame(ctx context.Context, file string) bool {
	out, err := exec.CommandContext(ctx, t.substorm, "send", "--to", cameraAddress, file).CombinedOutput()
	if err != nil && ctx.Err() == nil {
		fmt.Fprintf(os.Stderr, "camera: %v\n%s", err, out)
	}
	return err == nil
}

// magnetometer sends a line each second: the values are those that were recorded, the times are those of now. To a Site that knows
// nothing yet it first sends what it would have sent before, so that there is a line to look at.
func (t *try) magnetometer(ctx context.Context, lines []string) {
	conn, err := net.Dial("udp", magnetometerAddress)
	if err != nil {
		fmt.Fprintf(os.Stderr, "magnetometer: %v\n", err)
		return
	}
	defer func() { _ = conn.Close() }()
	send := func(line string, at time.Time) {
		_, _ = conn.Write([]byte(sampledata.Redate(line, at))) // UDP does not report whether it arrived
	}
	if began := time.Now(); t.fresh {
		for i, line := range lines {
			send(line, began.Add(time.Duration(i-len(lines))*magnetometerEvery))
			pause(ctx, betweenOld)
		}
	}
	for i := 0; ctx.Err() == nil; i++ {
		send(lines[i%len(lines)], time.Now())
		pause(ctx, magnetometerEvery)
	}
}

// pause waits, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// client of the Site's HTTP.
var client = &http.Client{}
