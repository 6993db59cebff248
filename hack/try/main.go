// SPDX-License-Identifier: Apache-2.0

// Command try shows Substorm on this computer, without a cluster and as an ordinary user: `make try`. It builds `substorm`, has it run
// the Site of docs/samples/try in one process, and sends what a camera and a magnetometer have to send, until it is
// interrupted.
package main

import (
	"context"
	"errors"
	"flag"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/substorm/substorm/hack/compile"
	"github.com/substorm/substorm/hack/paths"
	"github.com/substorm/substorm/hack/progress"
	"github.com/substorm/substorm/hack/sampledata"
)

func main() { progress.Main("try", run) }

// try is one run.
type try struct {
	p        *progress.Printer
	root     string // of the checkout
	dir      string // the data folder
	fresh    bool   // it was empty
	substorm string // the program
	url      string
	began    time.Time
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("try", flag.ContinueOnError)
	keep := flags.String("keep", "", "keep the data in this folder, and go on with what is there (default: a folder that is removed in the end)")
	ingest := flags.String("ingest", "127.0.0.1", "IP address on which instruments are received from; 0.0.0.0 for those of other computers too")
	listen := flags.String("listen", "", "host:port of the page (default: 127.0.0.1:8080, or the next free port)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	root, err := paths.Checkout()
	if err != nil {
		return err
	}
	t := &try{p: progress.New(os.Stderr), root: root, dir: *keep, began: time.Now(), substorm: filepath.Join(root, "bin", "substorm")}
	if t.dir == "" {
		if t.dir, err = os.MkdirTemp("", "substorm-try-"); err != nil {
			return err
		}
		t.fresh = true
		defer func() { _ = os.RemoveAll(t.dir) }()
	}
	if *listen == "" {
		*listen = freeFrom(8080)
	}
	t.url = "http://" + *listen
	if err := t.build(ctx); err != nil {
		return err
	}
	return t.show(ctx, *listen, *ingest)
}

// build builds the program. The first time it compiles all that it is made of.
func (t *try) build(ctx context.Context) error {
	step := t.p.Step("build substorm (some minutes the first time)")
	err := compile.Program(ctx, filepath.Join(t.root, "cli", "cmd"), t.substorm, "")
	step.Done(err)
	return err
}

// show runs the Site and its instruments until ctx ends.
func (t *try) show(ctx context.Context, listen, ingest string) error {
	data, err := sampledata.Find(t.root, filepath.Join(t.dir, "samples"))
	if err != nil {
		return err
	}
	stop := make(chan struct{})
	up := exec.Command(t.substorm, "up", "-f", filepath.Join(t.root, "docs", "samples", "try"), "--data-dir", t.dir, "--listen", listen, "--listen-ingest", ingest, "--listen-metrics=")
	up.Stdout, up.Stderr = os.Stdout, os.Stderr
	// A Ctrl-C of the terminal reaches this program alone, which passes it on: a second one would end the Site at once.
	up.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGINT}
	if err := up.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- up.Wait() }()
	sending, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		defer close(stop)
		t.send(sending, data)
	}()
	select {
	case err = <-ended:
		return errors.Join(errors.New("substorm up has ended"), err)
	case <-ctx.Done():
		_ = up.Process.Signal(os.Interrupt)
		cancel()
		<-stop
		return <-ended
	}
}

// freeFrom returns the first free address of loopback from a port on.
func freeFrom(port int) string {
	for p := port; p < port+100; p++ {
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(p))
		if l, err := net.Listen("tcp", address); err == nil {
			_ = l.Close()
			return address
		}
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}
