// SPDX-License-Identifier: Apache-2.0

package process

import (
	"bufio"
	"net/http"
	"strconv"
	"strings"
)

// Metric is a figure that a program shows at a URL, by its name with labels; found is
// false where it shows none, as of a counter that counted nothing yet.
func Metric(url, name string) (value float64, found bool, err error) {
	resp, err := http.Get(url)
	if err != nil {
		return 0, false, err
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if text, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			value, err = strconv.ParseFloat(text, 64)
			return value, err == nil, err
		}
	}
	return 0, false, lines.Err()
}
