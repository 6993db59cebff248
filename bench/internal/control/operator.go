// SPDX-License-Identifier: Apache-2.0

package control

import (
	"bufio"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/substorm/substorm/bench/internal/lab"
	"github.com/substorm/substorm/bench/internal/process"
	"github.com/substorm/substorm/internal/testenv"
)

// Operator is the operator in a process of its own.
type Operator struct {
	cmd     *exec.Cmd
	metrics string
	// profiles is where the operator serves them; empty: not requested.
	profiles string
	once     sync.Once
}

// heapLimit is what the operator sets itself in the chart's container of 320Mi.
const heapLimit = "256MiB"

// StartOperator starts an operator for a namespace, or several with commas between them. Its log goes where
// SUBSTORM_BENCH_CONTROL_LOG says, and nowhere without it.
func StartOperator(l *lab.Lab, api *testenv.KubernetesAPI, namespace string) (*Operator, error) {
	metrics, probes := testenv.FreePort(l), testenv.FreePort(l)
	o := &Operator{metrics: fmt.Sprintf("http://127.0.0.1:%d/metrics", metrics)}
	o.cmd = exec.Command(testenv.Program(l, "operator"), "--gateway-image", "substorm/ingest-gateway:dev", "--feed-server-image", "substorm/feed-server:dev",
		"--archivist-image", "substorm/archivist:dev", "--mirror-image", "substorm/mirror-jobs:dev", "--watch-namespaces", namespace, "--leader-election=false", "--log-level", "warn",
		"--metrics-address", fmt.Sprintf("127.0.0.1:%d", metrics), "--probe-address", fmt.Sprintf("127.0.0.1:%d", probes))
	if os.Getenv(process.Profiles) != "" {
		pprof := fmt.Sprintf("127.0.0.1:%d", testenv.FreePort(l))
		o.profiles = "http://" + pprof + "/debug/pprof/"
		o.cmd.Args = append(o.cmd.Args, "--pprof-address", pprof)
	}
	o.cmd.Env = append(os.Environ(), "GOMEMLIMIT="+heapLimit, "KUBECONFIG="+api.Kubeconfig(l, "operator-"+filepath.Base(l.TempDir()), "system:masters"))
	if name := os.Getenv("SUBSTORM_BENCH_CONTROL_LOG"); name != "" {
		file, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		o.cmd.Stderr = file
	}
	if err := process.StartOn(o.cmd, nil); err != nil {
		return nil, err
	}
	l.Cleanup(o.Stop)
	return o, nil
}

// Stop ends it.
func (o *Operator) Stop() {
	o.once.Do(func() {
		_ = o.cmd.Process.Signal(syscall.SIGTERM)
		_ = o.cmd.Wait()
	})
}

// Time is the processor time that it has used.
func (o *Operator) Time() (time.Duration, error) { return process.Time(o.cmd.Process.Pid) }

// Peak is the most memory that it had, in MiB.
func (o *Operator) Peak() (float64, error) { return process.PeakMiB(o.cmd.Process.Pid) }

// Profile keeps a profile in the folder that was asked for, of an operator that may still be starting.
func (o *Operator) Profile(kind, name string) error {
	if o.profiles == "" {
		return nil
	}
	for tries := 0; ; tries++ {
		err := process.KeepProfile(o.profiles+kind, name)
		if err == nil || tries == 100 {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// Uses says what the operator used in a phase of a given length.
func (o *Operator) Uses(length time.Duration, phase func() error) (Usage, error) {
	timeBefore, err := o.Time()
	if err != nil {
		return Usage{}, err
	}
	writesBefore, err := o.sum(isWrite)
	if err != nil {
		return Usage{}, err
	}
	if err := phase(); err != nil {
		return Usage{}, err
	}
	timeAfter, err := o.Time()
	if err != nil {
		return Usage{}, err
	}
	writesAfter, err := o.sum(isWrite)
	return Usage{Cores: (timeAfter - timeBefore).Seconds() / length.Seconds(), Writes: (writesAfter - writesBefore) / length.Seconds()}, err
}

// Usage is what the operator used in a phase.
type Usage struct {
	Cores  float64
	Writes float64 // per second
}

// isWrite finds the operator's own count of what it asked the API server to change.
func isWrite(series string) bool {
	return strings.HasPrefix(series, "rest_client_requests_total{") && !strings.Contains(series, `method="GET"`)
}

// Judged is how many Instruments the operator has planned a status for.
func (o *Operator) Judged() (int, error) {
	n := 0
	_, err := o.sum(func(series string) bool {
		if strings.HasPrefix(series, "substorm_instrument_data_flowing{") {
			n++
		}
		return false
	})
	return n, err
}

// sum adds up series of the operator's metrics. While it starts it shows none.
func (o *Operator) sum(counts func(series string) bool) (total float64, err error) {
	resp, err := http.Get(o.metrics)
	if err != nil {
		return 0, nil //nolint:nilerr // it starts
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		series, value, _ := cutLast(lines.Text(), " ")
		if !counts(series) {
			continue
		}
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return 0, fmt.Errorf("metric %s: %w", series, err)
		}
		total += n
	}
	return total, lines.Err()
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}
