// SPDX-License-Identifier: Apache-2.0

package spaceweather

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
)

// maxValues bounds the values of a document, which take up to 100 bytes of memory each once they are decoded: an answer of 8 MiB that is
// all brackets would have millions. A day of the solar wind of three spacecraft has about 150,000.
const maxValues = 500_000

// ofObject is how many values an object counts as beside those that it has: one of a single field takes 400 bytes.
const ofObject = 4

// decoding is held while a document is decoded, so that many sources which answer at the same time take the memory of one.
var decoding sync.Mutex

// bounded refuses a document with too many values, before it is decoded. Characters that it counts within texts do no harm.
func bounded(body []byte) error {
	n := ofObject * bytes.Count(body, []byte("{"))
	for _, c := range []string{",", "["} {
		n += bytes.Count(body, []byte(c))
	}
	if n > maxValues {
		return fmt.Errorf("has more than %d values: declare the URL of a smaller product", maxValues)
	}
	return nil
}

// decode reads one value of JSON, numbers as they are written: one that no float64 can hold is refused alone, and not the answer.
func decode(body []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is something after the value")
	}
	return nil
}

// scalar reads a value that was found to be JSON: null, a truth, text, or a number as it is written. An array or an object is its text.
func scalar(raw json.RawMessage) any {
	switch raw[0] {
	case 'n':
		return nil
	case 't', 'f':
		return raw[0] == 't'
	case '"':
		var text string
		if json.Unmarshal(raw, &text) == nil {
			return text
		}
	case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		return json.Number(raw)
	}
	return string(raw)
}

// notRead says why a body could not be decoded.
func notRead(err error) error {
	var other *json.UnmarshalTypeError
	if errors.As(err, &other) {
		return errShape
	}
	return fmt.Errorf("is not JSON, or was cut off (%w): if that lasts, look at it in a browser", err)
}
