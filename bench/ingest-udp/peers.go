// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/bench/internal/datagram"
	"github.com/substorm/substorm/bench/internal/lab"
	"github.com/substorm/substorm/bench/internal/process"
	"github.com/substorm/substorm/bench/internal/receiver"
	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// profiles names a folder that gets a processor profile of the gateway in each trial.
const profiles = "SUBSTORM_BENCH_PROFILES"

// candidate receives datagrams on a port and keeps each with its time of receipt.
type candidate struct {
	port int
	// pids of all that the job takes; the first is the receiver itself.
	pids []int
	// kept counts what is kept since the last call.
	kept func() (int64, error)
	stop func()
}

// start starts a candidate again, on the receivers' core.
type start func(*lab.Lab) (*candidate, error)

// startGateway starts a whole gateway with a JetStream that syncs. The object
// store is not used: segments are cut after ten minutes.
func startGateway(bucket *testenv.MinIOServer) start {
	trial := 0
	return func(l *lab.Lab) (*candidate, error) {
		o := receiver.Options{Datagrams: true, CPUs: receivers}
		if dir := os.Getenv(profiles); dir != "" {
			trial++
			o.Profile = filepath.Join(dir, fmt.Sprintf("gateway-%d.pprof", trial))
		}
		streams := l.TempDir()
		nats := testenv.NATS(l, testenv.NATSOptions{Dir: streams})
		js := nats.JetStream(l)
		testenv.CreateSite(l, js, receiver.SiteCode)
		if err := widen(js); err != nil {
			return nil, err
		}
		if err := process.OnCores(nats.PID(), receivers); err != nil {
			return nil, err
		}
		gateway := receiver.StartSite(l, receiver.Backends{Bucket: receiver.BucketOf(bucket.Config(receiver.BucketName)), NATS: nats.URL()}, o)
		if err := listening(gateway.Port()); err != nil {
			return nil, err
		}
		next := uint64(1)
		return &candidate{
			port: gateway.Port(), pids: []int{gateway.PID(), nats.PID()},
			kept: func() (n int64, err error) {
				n, next, err = inStream(js, next)
				return n, err
			},
			stop: func() {
				gateway.Stop()
				nats.Kill()
				_ = os.RemoveAll(streams) // gigabytes
			},
		}, nil
	}
}

// widen gives the base stream space for all that a trial sends.
func widen(js jetstream.JetStream) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	s, err := js.Stream(ctx, wire.ObservationStream(receiver.SiteCode))
	if err != nil {
		return err
	}
	config := s.CachedInfo().Config
	config.MaxBytes = 8 << 30
	_, err = js.UpdateStream(ctx, config)
	return err
}

// inStream counts the datagrams in the stream's messages from a sequence on, and
// returns the next sequence.
func inStream(js jetstream.JetStream, from uint64) (n int64, next uint64, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s, err := js.Stream(ctx, wire.ObservationStream(receiver.SiteCode))
	if err != nil {
		return 0, from, err
	}
	info, err := s.Info(ctx)
	if err != nil {
		return 0, from, err
	}
	for ; from <= info.State.LastSeq; from++ {
		m, err := s.GetMsg(ctx, from)
		if err != nil {
			return n, from, err
		}
		for _, err := range wire.Datagrams(m.Data) {
			if err != nil {
				return n, from, err
			}
			n++
		}
	}
	return n, from, nil
}

// rsyslogConfig receives in batches, as it does by default, asks no name server who
// sent, and writes each datagram as a line with time and source through a queue.
const rsyslogConfig = `global(net.enableDNS="off" workDirectory="%[1]s" maxMessageSize="8k")
module(load="imudp" batchSize="64")
template(name="line" type="string" string="%%timegenerated:::date-rfc3339%% %%fromhost-ip%% %%rawmsg%%\n")
ruleset(name="keep" queue.type="FixedArray" queue.size="100000" queue.dequeueBatchSize="1024" queue.workerThreads="1") {
  action(type="omfile" file="%[2]s" template="line" ioBufferSize="256k" flushOnTXEnd="off" flushInterval="1" asyncWriting="on")
}
input(type="imudp" address="127.0.0.1" port="%[3]d" rcvbufSize="16m" ruleset="keep" name="bench" rateLimit.interval="0")
`

func startRsyslog(l *lab.Lab) (*candidate, error) {
	program, err := exec.LookPath("rsyslogd")
	if err != nil {
		return nil, fmt.Errorf("rsyslogd is not installed: apt-get install rsyslog")
	}
	return startPeer(l, rsyslogConfig, func(dir, config string) []string {
		return []string{program, "-n", "-C", "-f", config, "-i", filepath.Join(dir, "pid")}
	})
}

// telegrafConfig receives and writes lines of InfluxDB's line protocol.
const telegrafConfig = `[agent]
  interval = "1s"
  flush_interval = "1s"
  metric_batch_size = 10000
  metric_buffer_limit = 1000000
  precision = "1ns"
  omit_hostname = true
  quiet = true
# %[1]s
[[inputs.socket_listener]]
  service_address = "udp://127.0.0.1:%[3]d"
  read_buffer_size = "16MiB"
  data_format = "value"
  data_type = "string"
[[outputs.file]]
  files = ["%[2]s"]
  data_format = "influx"
`

func startTelegraf(l *lab.Lab) (*candidate, error) {
	program := testenv.Path(l, "telegraf")
	return startPeer(l, telegrafConfig, func(_, config string) []string { return []string{program, config} })
}

// startPeer starts a program that writes one line a datagram into a file.
func startPeer(l *lab.Lab, config string, argv func(dir, config string) []string) (*candidate, error) {
	dir, port := l.TempDir(), testenv.FreePort(l)
	kept, file := filepath.Join(dir, "kept"), filepath.Join(dir, "config")
	if err := os.WriteFile(file, fmt.Appendf(nil, config, dir, kept, port), 0o600); err != nil {
		return nil, err
	}
	args := argv(dir, file)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	if err := process.StartOn(cmd, receivers); err != nil {
		return nil, fmt.Errorf("start %s: %w", args[0], err)
	}
	stop := func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	l.Cleanup(stop)
	if err := listening(port); err != nil {
		return nil, fmt.Errorf("%s: %w", args[0], err)
	}
	read := int64(0)
	return &candidate{
		port: port, pids: []int{cmd.Process.Pid}, stop: func() { stop(); _ = os.Remove(kept) },
		kept: func() (n int64, err error) {
			n, read, err = lines(kept, read)
			return n, err
		},
	}, nil
}

// lines counts the line ends of a file from an offset on, and returns the next offset.
func lines(file string, from int64) (n, next int64, err error) {
	f, err := os.Open(file)
	if os.IsNotExist(err) {
		return 0, from, nil
	}
	if err != nil {
		return 0, from, err
	}
	defer f.Close()
	buffer := make([]byte, 1<<20)
	for {
		k, err := f.ReadAt(buffer, from)
		n, from = n+int64(bytes.Count(buffer[:k], []byte{'\n'})), from+int64(k)
		if err != nil { // the end: ReadAt fills the buffer otherwise
			return n, from, nil
		}
	}
}

// listening waits until a program receives on a port.
func listening(port int) (err error) {
	for range 1000 {
		if _, err = datagram.Drops(port); err == nil {
			return nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return err
}
