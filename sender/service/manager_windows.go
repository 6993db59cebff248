// SPDX-License-Identifier: Apache-2.0

package service

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/windows"
	"golang.org/x/sys/windows/svc"
	"golang.org/x/sys/windows/svc/eventlog"
	"golang.org/x/sys/windows/svc/mgr"
)

// manager is the service control manager.
type manager struct{}

func (*manager) flags(*cobra.Command) {}

// eventSource is under which messages stand in the event log.
const eventSource = "substorm-send"

func (*manager) install(_ context.Context, s Spec, out io.Writer) error {
	if err := s.check(); err != nil {
		return err
	}
	m, err := mgr.Connect()
	if err != nil {
		return fmt.Errorf("connect to the service manager (as administrator?): %w", err)
	}
	defer m.Disconnect()
	config := mgr.Config{
		DisplayName: "Substorm sender (" + s.Name + ")", Description: "Sends new files to Substorm, and keeps what has no receipt.",
		StartType: mgr.StartAutomatic, DelayedAutoStart: true,
	}
	config.ServiceStartName = s.account()
	service, err := m.OpenService(s.Name)
	if err == nil {
		err = replace(service, config, s)
	} else {
		service, err = m.CreateService(s.Name, s.Program, config, s.Args...)
	}
	if err != nil {
		return fmt.Errorf("install service %s: %w", s.Name, err)
	}
	defer service.Close()
	if err := s.allow(); err != nil {
		return err
	}
	again := []mgr.RecoveryAction{{Type: mgr.ServiceRestart, Delay: 2 * time.Second}}
	if err := errors.Join(service.SetRecoveryActions(again, 60), service.SetRecoveryActionsOnNonCrashFailures(true)); err != nil {
		return fmt.Errorf("set service %s to restart when it fails: %w", s.Name, err)
	}
	// It is there already, for another sender or from an earlier time.
	_ = eventlog.InstallAsEventCreate(eventSource, eventlog.Info|eventlog.Warning|eventlog.Error)
	if err := service.Start(); err != nil {
		return fmt.Errorf("start service %s: %w", s.Name, err)
	}
	fmt.Fprintf(out, "started %s: see services.msc, and %s in the event log\n", s.Name, eventSource)
	return nil
}

// replace gives a service other flags.
func replace(service *mgr.Service, config mgr.Config, s Spec) error {
	if err := stop(service); err != nil {
		return err
	}
	was, err := service.Config()
	if err != nil {
		return err
	}
	was.DisplayName, was.Description, was.StartType, was.DelayedAutoStart = config.DisplayName, config.Description, config.StartType, config.DelayedAutoStart
	was.ServiceStartName = config.ServiceStartName
	was.BinaryPathName = windows.ComposeCommandLine(append([]string{s.Program}, s.Args...))
	return service.UpdateConfig(was)
}

// stopTimeout is how long a sender may take to stop.
const stopTimeout = 15 * time.Second

func stop(service *mgr.Service) error {
	status, err := service.Control(svc.Stop)
	if errors.Is(err, windows.ERROR_SERVICE_NOT_ACTIVE) {
		return nil
	}
	for end := time.Now().Add(stopTimeout); err == nil && status.State != svc.Stopped; status, err = service.Query() {
		if time.Now().After(end) {
			return fmt.Errorf("it does not stop within %v", stopTimeout)
		}
		time.Sleep(100 * time.Millisecond)
	}
	return err
}

func (*manager) uninstall(_ context.Context, name string, out io.Writer) error {
	m, err := mgr.Connect()
	if err != nil {
		return fmt.Errorf("connect to the service manager (as administrator?): %w", err)
	}
	defer m.Disconnect()
	service, err := m.OpenService(name)
	if err != nil {
		return fmt.Errorf("service %s: %w", name, err)
	}
	defer service.Close()
	if err := stop(service); err != nil {
		return fmt.Errorf("stop service %s: %w", name, err)
	}
	if err := service.Delete(); err != nil {
		return fmt.Errorf("remove service %s: %w", name, err)
	}
	fmt.Fprintf(out, "removed service %s; the queue stays where it is\n", name)
	return nil
}

// Run runs a sender. If the service manager started the program, it listens to it, and messages go to the event log.
func Run(ctx context.Context, messages io.Writer, run func(context.Context, io.Writer) error) error {
	ours, err := svc.IsWindowsService()
	if err != nil || !ours {
		return errors.Join(err, run(ctx, messages))
	}
	log, err := eventlog.Open(eventSource)
	if err != nil {
		return err
	}
	defer log.Close()
	h := &handler{ctx: ctx, run: func(ctx context.Context) error { return run(ctx, events{log}) }}
	if err := svc.Run(eventSource, h); err != nil {
		return err
	}
	return h.err
}

// handler answers the service manager.
type handler struct {
	ctx context.Context
	run func(context.Context) error
	err error
}

// Execute implements svc.Handler.
func (h *handler) Execute(_ []string, requests <-chan svc.ChangeRequest, status chan<- svc.Status) (specific bool, code uint32) {
	ctx, cancel := context.WithCancel(h.ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- h.run(ctx) }()
	running := svc.Status{State: svc.Running, Accepts: svc.AcceptStop | svc.AcceptShutdown}
	status <- running
	for {
		select {
		case h.err = <-done:
			status <- svc.Status{State: svc.StopPending}
			if h.err != nil {
				return true, 1
			}
			return false, 0
		case r := <-requests:
			switch r.Cmd {
			case svc.Interrogate:
				status <- r.CurrentStatus
			case svc.Stop, svc.Shutdown:
				status <- svc.Status{State: svc.StopPending}
				cancel()
			}
		}
	}
}

// events writes lines of slog to the event log.
type events struct{ log *eventlog.Log }

// Write implements io.Writer.
func (e events) Write(line []byte) (int, error) {
	text := string(bytes.TrimSpace(line))
	var err error
	switch {
	case bytes.Contains(line, []byte("level=ERROR")):
		err = e.log.Error(1, text)
	case bytes.Contains(line, []byte("level=WARN")):
		err = e.log.Warning(1, text)
	default:
		err = e.log.Info(1, text)
	}
	return len(line), err
}
