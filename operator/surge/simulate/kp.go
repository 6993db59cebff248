// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/substorm/substorm/operator/surge"
)

// KpInterval is how long one value of Kp is for.
const KpInterval = 3 * time.Hour

// mostValues is how many a file may have: thirty years of Kp.
const mostValues = 100_000

// ReadKp reads a file of Kp: lines of time,kp after a header of these words, the times in RFC 3339, one for each three hours, in
// order. Missing ones are gaps. Lines that begin with # are comments. Errors name the file and the line.
func ReadKp(file string, from io.Reader) ([]surge.Sample, error) {
	var all []surge.Sample
	lines, number, head := bufio.NewScanner(from), 0, false
	fail := func(format string, args ...any) error {
		return fmt.Errorf("%s:%d: %s", file, number, fmt.Sprintf(format, args...))
	}
	for lines.Scan() {
		number++
		line := strings.TrimSpace(lines.Text())
		switch {
		case line == "" || line[0] == '#':
			continue
		case !head && strings.ReplaceAll(strings.ToLower(line), " ", "") != "time,kp":
			return nil, fail("%.60q is no header: the first line that is no comment must be time,kp", line)
		case !head:
			head = true
			continue
		}
		one, err := readValue(line)
		switch n := len(all); {
		case err != nil:
			return nil, fail("%s", err)
		case n > 0 && one.From.Before(all[n-1].To):
			return nil, fail("%s begins before the three hours of the line before are over: sort the lines by time", one.From.Format(time.RFC3339))
		case n == mostValues:
			return nil, fail("there are more than %d values: cut the file to the time that is to be replayed", mostValues)
		}
		all = append(all, one)
	}
	if err := lines.Err(); err != nil {
		number++
		return nil, fail("%s", err)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s has no values: lines such as 2015-03-17T12:00:00Z,7.7 after the header time,kp", file)
	}
	return all, nil
}

func readValue(line string) (surge.Sample, error) {
	at, value, is := strings.Cut(line, ",")
	if !is {
		return surge.Sample{}, fmt.Errorf("%.60q is no time,kp, as 2015-03-17T12:00:00Z,7.7", line)
	}
	from, err := time.Parse(time.RFC3339, strings.TrimSpace(at))
	if err != nil {
		return surge.Sample{}, fmt.Errorf("%.40q is no time, as 2015-03-17T12:00:00Z", at)
	}
	kp, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
	if err != nil || math.IsNaN(kp) || kp < 0 || kp > 9 {
		return surge.Sample{}, fmt.Errorf("%.40q is no Kp: 0 to 9", value)
	}
	from = from.UTC()
	return surge.Sample{From: from, To: from.Add(KpInterval), Value: kp}, nil
}
