// SPDX-License-Identifier: Apache-2.0

package sender

import (
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/substorm/substorm/internal/wire"
)

// Outcome is what became of an object.
type Outcome string

// The outcomes.
const (
	// Received: a receipt for its digest and size came.
	Received Outcome = "received"
	// Refused: a server said why it does not take it.
	Refused Outcome = "refused"
	// Unknown: it was sent to its end and no receipt came; it may be stored.
	Unknown Outcome = "unknown"
	// Unsent: it was never sent to its end.
	Unsent Outcome = "unsent"
	// SentWithoutReceipt: a datagram left; UDP has no receipt.
	SentWithoutReceipt Outcome = "sent"
)

// Result is a line of the report.
type Result struct {
	Name    string  `json:"name"`
	Outcome Outcome `json:"outcome"`
	// SHA256 and Bytes of what was sent; SHA256 is absent where it was never
	// read to its end.
	SHA256 string `json:"sha256,omitempty"`
	Bytes  int64  `json:"bytes"`
	// ReceiptedAt is when the receipt came, by the sender's clock; SentAt when
	// a datagram left.
	ReceiptedAt *time.Time `json:"receiptedAt,omitempty"`
	SentAt      *time.Time `json:"sentAt,omitempty"`
	// Tries is how many connections were tried, or how often a datagram was sent.
	Tries int `json:"tries"`
	// Server is the address that was tried last.
	Server string `json:"server,omitempty"`
	// Cause of Refused.
	Cause wire.Cause `json:"cause,omitempty"`
	// Error is the last error where nothing was received.
	Error string `json:"error,omitempty"`

	// progress: servers have more of it than before.
	progress bool
}

// ok reports whether there is nothing more to do for the object.
func (r *Result) ok() bool { return r.Outcome == Received || r.Outcome == SentWithoutReceipt }

// report writes results as JSON lines, as they happen. A nil report writes nothing.
type report struct {
	mu   sync.Mutex
	file *os.File
}

// openReport opens a file to append to it: results of earlier runs stay.
func openReport(path string) (*report, error) {
	if path == "" {
		return nil, nil
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the report: %w", err)
	}
	return &report{file: f}, nil
}

func (r *report) write(result Result) error {
	if r == nil {
		return nil
	}
	text, err := json.Marshal(result)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, err := r.file.Write(append(text, '\n')); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}

func (r *report) close() error {
	if r == nil {
		return nil
	}
	if err := r.file.Sync(); err != nil {
		r.file.Close()
		return fmt.Errorf("write the report: %w", err)
	}
	return r.file.Close()
}
