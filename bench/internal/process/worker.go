// SPDX-License-Identifier: Apache-2.0

package process

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// Worker is this program again, in a process of its own, that carries out orders of
// type O one after the other and answers each with an R, as JSON. It ends when its
// standard input does.
type Worker[O, R any] struct {
	mu     sync.Mutex
	orders *json.Encoder
	answer *json.Decoder
}

// StartWorker starts a worker on these cores; nil for all. Environment is the
// variable by which the program knows that it is one, see Work.
func StartWorker[O, R any](l testing.TB, environment string, cpus []int) *Worker[O, R] {
	program, err := os.Executable()
	if err != nil {
		l.Fatal(err)
	}
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), environment+"=1")
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		l.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		l.Fatal(err)
	}
	if err := StartOn(cmd, cpus); err != nil {
		l.Fatal(err)
	}
	l.Cleanup(func() {
		_ = stdin.Close()
		_ = cmd.Wait()
	})
	return &Worker[O, R]{orders: json.NewEncoder(stdin), answer: json.NewDecoder(bufio.NewReader(stdout))}
}

// Do has an order carried out. Error: the worker is gone.
func (w *Worker[O, R]) Do(order O) (answer R, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err = w.orders.Encode(order); err == nil {
		err = w.answer.Decode(&answer)
	}
	if err != nil {
		err = fmt.Errorf("the worker is gone: see what it printed before: %w", err)
	}
	return answer, err
}

// Work is called early by a main: in a worker it carries out orders until there are
// no more, and does not return.
func Work[O, R any](environment string, do func(O) R) {
	if os.Getenv(environment) == "" {
		return
	}
	orders, answers := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var order O
		if orders.Decode(&order) != nil {
			os.Exit(0)
		}
		if answers.Encode(do(order)) != nil {
			os.Exit(1)
		}
	}
}

// StartOn starts a process that may use these cores only; nil for all. It dies
// with this one.
func StartOn(cmd *exec.Cmd, cpus []int) error {
	started := make(chan error)
	go func() { // the thread ends with the goroutine: no other goroutine gets its affinity
		runtime.LockOSThread()
		if len(cpus) > 0 {
			var set unix.CPUSet
			for _, c := range cpus {
				set.Set(c)
			}
			if err := unix.SchedSetaffinity(0, &set); err != nil {
				started <- fmt.Errorf("choose cores: %w", err)
				return
			}
		}
		started <- cmd.Start()
	}()
	return <-started
}
