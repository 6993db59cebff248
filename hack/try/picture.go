// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/png"
	"io"
	"net/http"
	"os"
	"strings"
	"time"
)

// maxSide bounds the pictures that are read, in pixels.
const maxSide = 8192

// pictures is a small product pipeline: it receives an event for each new frame of the camera, makes a picture of it that a browser
// shows, and sends that like any instrument. It asks for nothing twice: the events name the frame's own URL.
func (t *try) pictures(ctx context.Context) {
	for ctx.Err() == nil {
		if err := t.follow(ctx); err != nil && ctx.Err() == nil {
			fmt.Fprintf(os.Stderr, "pictures: %v; tried again\n", err)
		}
		pause(ctx, time.Second)
	}
}

// follow reads the camera's events (text/event-stream of the HTML Living Standard) until they end.
func (t *try) follow(ctx context.Context) error {
	events, err := get(ctx, t.url+"/latest/allsky-camera/events")
	if err != nil {
		return err
	}
	defer func() { _ = events.Close() }()
	lines := bufio.NewScanner(events)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		var frame struct {
			URL    string `json:"url"`
			SHA256 string `json:"sha256"`
		}
		if err := json.Unmarshal([]byte(data), &frame); err != nil || frame.URL == "" {
			continue // of another kind
		}
		if err := t.picture(ctx, frame.URL, frame.SHA256); err != nil {
			return err
		}
	}
	return lines.Err()
}

// picture makes the picture of a frame, and sends it under a name that tells which frame it is of.
func (t *try) picture(ctx context.Context, url, digest string) error {
	frame, err := get(ctx, t.url+url)
	if err != nil {
		return err
	}
	defer func() { _ = frame.Close() }()
	picture, err := readFrame(frame)
	if err != nil {
		return fmt.Errorf("%s: %w", url, err)
	}
	var out bytes.Buffer
	if err := png.Encode(&out, picture); err != nil {
		return err
	}
	name := time.Now().UTC().Format("20060102_150405_") + digest[:min(8, len(digest))] + ".png"
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, picturesURL+name, &out)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "image/png")
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusCreated && resp.StatusCode != http.StatusOK {
		said, _ := io.ReadAll(io.LimitReader(resp.Body, 1024))
		return fmt.Errorf("PUT %s: %s: %s", name, resp.Status, said)
	}
	return nil
}

func get(ctx context.Context, url string) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		_ = resp.Body.Close()
		return nil, fmt.Errorf("GET %s: %s", url, resp.Status)
	}
	return resp.Body, nil
}

// readFrame reads a gzipped PGM (netpbm's pgm(5)) of 8 or 16 bits, and stretches what is between its darkest and its brightest
// thousandth over the greys of a screen.
func readFrame(r io.Reader) (*image.Gray, error) {
	z, err := gzip.NewReader(r)
	if err != nil {
		return nil, err
	}
	in := bufio.NewReader(z)
	width, height, most, err := readHeader(in)
	if err != nil {
		return nil, err
	}
	values := make([]uint16, width*height)
	counts := make([]int, 1<<16)
	for i := range values {
		if values[i], err = readValue(in, most); err != nil {
			return nil, err
		}
		counts[values[i]]++
	}
	dark, bright := limits(counts, len(values))
	picture := image.NewGray(image.Rect(0, 0, width, height))
	for i, v := range values {
		picture.Pix[i] = uint8((min(max(int(v), dark), bright) - dark) * 255 / max(1, bright-dark))
	}
	return picture, nil
}

// readHeader reads the magic number, and three numbers between which there may be comments.
func readHeader(in *bufio.Reader) (width, height, most int, err error) {
	magic := make([]byte, 2)
	if _, err := io.ReadFull(in, magic); err != nil || string(magic) != "P5" {
		return 0, 0, 0, errors.Join(errors.New("this is not a PGM"), err)
	}
	for _, n := range []*int{&width, &height, &most} {
		if *n, err = readNumber(in); err != nil {
			return 0, 0, 0, err
		}
	}
	if width < 1 || height < 1 || width > maxSide || height > maxSide || most < 1 || most > 1<<16-1 {
		return 0, 0, 0, fmt.Errorf("unsupported PGM: %d × %d pixels with values up to %d", width, height, most)
	}
	return width, height, most, nil
}

// readNumber reads a number and the one space after it.
func readNumber(in *bufio.Reader) (n int, err error) {
	digits := 0
	for {
		c, err := in.ReadByte()
		switch {
		case err != nil:
			return 0, err
		case c == '#' && digits == 0:
			if _, err := in.ReadString('\n'); err != nil {
				return 0, err
			}
		case c >= '0' && c <= '9' && digits < 6:
			n = 10*n + int(c-'0')
			digits++
		case c == ' ' || c == '\n' || c == '\t' || c == '\r':
			if digits > 0 {
				return n, nil
			}
		default:
			return 0, fmt.Errorf("unexpected %q in the header of a PGM", c)
		}
	}
}

func readValue(in *bufio.Reader, most int) (uint16, error) {
	var b [2]byte
	if most < 256 {
		_, err := io.ReadFull(in, b[1:])
		return uint16(b[1]), err
	}
	_, err := io.ReadFull(in, b[:])
	return binary.BigEndian.Uint16(b[:]), err
}

// limits are the values below and above which a thousandth of the pixels lies.
func limits(counts []int, pixels int) (dark, bright int) {
	dark, bright = 0, len(counts)-1
	for n := 0; n <= pixels/1000 && dark < bright; dark++ {
		n += counts[dark]
	}
	for n := 0; n <= pixels/1000 && bright > dark; bright-- {
		n += counts[bright]
	}
	return dark, bright
}
