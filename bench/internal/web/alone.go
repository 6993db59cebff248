// SPDX-License-Identifier: Apache-2.0

package web

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/substorm/substorm/bench/internal/process"
)

// aloneEnvironment tells a process that it is Alone.
const aloneEnvironment = "SUBSTORM_BENCH_ALONE"

// Alone is net/http by itself: it serves one object from memory, with an entity tag, and
// does nothing else. Every server that is built on net/http needs at least as much as
// Alone.
type Alone struct {
	// Address is host:port.
	Address string
	PID     int
	// Error is why it does not serve.
	Error string
}

// file is what Alone serves under any path.
type file struct {
	MediaType string
	Body      []byte
	At        time.Time
}

// StartAlone starts it on cores with an object.
func StartAlone(l testing.TB, cores []int, o Object) (Alone, error) {
	a, err := process.StartWorker[file, Alone](l, aloneEnvironment, cores).Do(file{o.MediaType, o.Body, o.At})
	if err == nil && a.Error != "" {
		err = fmt.Errorf("net/http alone: %s", a.Error)
	}
	return a, err
}

func serveAlone(f file) Alone {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return Alone{Error: err.Error()}
	}
	tag := fmt.Sprintf("%q", fmt.Sprintf("sha256:%x", sha256.Sum256(f.Body)))
	go func() {
		_ = http.Serve(listener, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", f.MediaType)
			w.Header().Set("ETag", tag)
			http.ServeContent(w, r, "", f.At, bytes.NewReader(f.Body))
		})) // until the process ends
	}()
	return Alone{Address: listener.Addr().String(), PID: os.Getpid()}
}
