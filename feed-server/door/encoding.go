// SPDX-License-Identifier: Apache-2.0

package door

import (
	"net/http"
	"strconv"
	"strings"
)

// AcceptsGzip says whether a client takes the content coding gzip (RFC 9110,
// section 12.5.3). One that says nothing takes what is plain.
func AcceptsGzip(r *http.Request) bool {
	return quality(lines(r, "Accept-Encoding"), "gzip") > 0
}

// PrefersJSON says whether a client takes JSON rather than HTML. One that takes both
// alike is a person's browser.
func PrefersJSON(r *http.Request) bool {
	accept := lines(r, "Accept")
	return quality(accept, "application/json") > quality(accept, "text/html")
}

// quality is the weight of a value in a list (RFC 9110, section 12.4.2); 0 where the
// list does not name it, or forbids it.
func quality(list, value string) float64 {
	for part := range strings.SplitSeq(list, ",") {
		name, parameters, _ := strings.Cut(part, ";")
		if !strings.EqualFold(strings.TrimSpace(name), value) {
			continue
		}
		for parameter := range strings.SplitSeq(parameters, ";") {
			key, weight, _ := strings.Cut(strings.TrimSpace(parameter), "=")
			if !strings.EqualFold(key, "q") {
				continue
			}
			if q, err := strconv.ParseFloat(weight, 64); err == nil {
				return q
			}
		}
		return 1
	}
	return 0
}
