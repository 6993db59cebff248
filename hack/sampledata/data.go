// SPDX-License-Identifier: Apache-2.0

// Package sampledata finds recorded data of an all-sky camera and of a magnetometer, or makes some of the same shape.
package sampledata

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// maxLines bounds what there is of the magnetometer: ten minutes.
const maxLines = 600

// Data is what a camera and a magnetometer have to send.
type Data struct {
	// Frames are files: gzipped 16-bit PGM.
	Frames []string
	// Lines of IAGA-2002, one for each second.
	Lines []string
	// What says where they are from.
	What string
}

// Find takes recorded data where it lies beside the checkout at root, and else makes some in dir.
func Find(root, dir string) (Data, error) {
	recorded := filepath.Join(filepath.Dir(root), "shared", "data")
	frames, err := filepath.Glob(filepath.Join(recorded, "allsky", "*.pgm.gz"))
	if err != nil {
		return Data{}, err
	}
	if body, err := os.ReadFile(filepath.Join(recorded, "magnetometer", "BOU20200101vsec.sec")); err == nil && len(frames) > 0 {
		return Data{Frames: frames, Lines: dataLines(string(body)),
			What: "THEMIS all-sky frames of Gillam (University of Calgary) and one-second values of Boulder (USGS)"}, nil
	}
	return generate(dir)
}

// dataLines are the lines of an IAGA-2002 file that hold values: those that begin with a date.
func dataLines(file string) []string {
	var lines []string
	for line := range strings.Lines(file) {
		if line = strings.TrimRight(line, "\r\n"); line != "" && line[0] >= '0' && line[0] <= '9' && len(lines) < maxLines {
			lines = append(lines, line)
		}
	}
	return lines
}

// header is the date, the time and the day of the year of a line of IAGA-2002.
const header = "2006-01-02 15:04:05.000 002"

// Redate gives the values of a line another second: a Site does not believe times of observation that lie years back.
func Redate(line string, at time.Time) string {
	return at.UTC().Truncate(time.Second).Format(header) + line[len(header):]
}

func generate(dir string) (Data, error) {
	made := Data{What: "generated frames and values: no recorded data lies beside this checkout"}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return Data{}, err
	}
	start := time.Now().UTC().Truncate(time.Minute).Add(-maxLines * time.Second)
	for i := range 3 {
		at := start.Add(time.Duration(i) * time.Minute)
		frame, err := makeFrame(at)
		if err != nil {
			return Data{}, err
		}
		file := filepath.Join(dir, at.Format("20060102_1504")+"_generated.pgm.gz")
		if err := os.WriteFile(file, frame, 0o644); err != nil {
			return Data{}, err
		}
		made.Frames = append(made.Frames, file)
	}
	for i := range maxLines {
		at := start.Add(time.Duration(i) * time.Second)
		storm := math.Sin(float64(i) / 40)
		made.Lines = append(made.Lines, fmt.Sprintf("%s   %9.2f %9.2f %9.2f %9.2f", at.Format(header),
			20750+30*storm, 50+8*storm, 46700-12*storm, 51100+5*storm))
	}
	return made, nil
}

// makeFrame draws a band of light across the sky as a gzipped 16-bit PGM (netpbm's pgm(5)), different each minute.
func makeFrame(at time.Time) ([]byte, error) {
	const side = 512
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	fmt.Fprintf(z, "P5\n# generated for %s\n%d %d\n65535\n", at.Format(time.RFC3339), side, side)
	row := make([]byte, 2*side)
	phase := float64(at.Unix()/60%60) / 10
	for y := range side {
		for x := range side {
			dx, dy := float64(x-side/2), float64(y-side/2)
			light := uint16(0) // outside the fisheye's circle
			if math.Hypot(dx, dy) < side/2 {
				band := float64(side)/2 + 60*math.Sin(float64(x)/70+phase)
				noise := uint16((x*7919 + y*104729 + int(at.Unix())) % 251)
				light = 2800 + noise + uint16(20000*math.Exp(-math.Pow((float64(y)-band)/25, 2)))
			}
			binary.BigEndian.PutUint16(row[2*x:], light)
		}
		if _, err := z.Write(row); err != nil {
			return nil, err
		}
	}
	err := z.Close()
	return out.Bytes(), err
}
