// SPDX-License-Identifier: Apache-2.0

package objectstore

import (
	"encoding/xml"
	"errors"
	"fmt"
	"mime"
	"net/http"
)

// answers refuses answers that say that a call succeeded and are not those of an S3 server: minio-go takes some of them for a success, and
// keeps whatever comes.
type answers struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (a answers) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := a.RoundTripper.RoundTrip(r)
	if err != nil || resp.StatusCode/100 != 2 {
		return resp, err
	}
	if err := checkAnswer(r.Method, resp); err != nil {
		return nil, errors.Join(err, resp.Body.Close())
	}
	if !isObject(r) {
		resp.Body = &limitedAnswer{ReadCloser: resp.Body}
	}
	return resp, nil
}

// checkAnswer says what is wrong with an answer of 2xx. An object may be a page of HTML: then it has an ETag.
func checkAnswer(method string, resp *http.Response) error {
	media, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	switch {
	case err == nil && media == "text/html" && resp.Header.Get("ETag") == "":
		return fmt.Errorf("%w: it sends a page of HTML", ErrNoS3)
	case method == http.MethodDelete && resp.StatusCode != http.StatusNoContent:
		return fmt.Errorf("%w: it answers %s to a request to delete", ErrNoS3, resp.Status)
	}
	return nil
}

// checkTag returns an error where an answer has no ETag, which every S3 server gives to what it stores: nothing is known to be there.
func checkTag(call, key, tag string) error {
	if tag != "" {
		return nil
	}
	return fmt.Errorf("%s %s: %w: its answer has no ETag", call, key, ErrNoS3)
}

// isOther says whether an error of minio-go means that an answer was not one of S3.
func isOther(err error) bool {
	var syntax *xml.SyntaxError
	var element xml.UnmarshalError
	return errors.Is(err, ErrNoS3) || errors.As(err, &syntax) || errors.As(err, &element)
}
