// SPDX-License-Identifier: Apache-2.0

//go:build !windows

package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"

	"github.com/spf13/cobra"
)

// manager is systemd.
type manager struct {
	unitDir string
	noStart bool
}

func (m *manager) flags(c *cobra.Command) {
	c.Flags().StringVar(&m.unitDir, "unit-dir", "/etc/systemd/system", "folder of unit files")
	c.Flags().BoolVar(&m.noStart, "no-start", false, "write or remove the unit file only: for the image of a machine")
}

func (m *manager) unitFile(name string) string { return filepath.Join(m.unitDir, name+".service") }

func (m *manager) install(ctx context.Context, s Spec, out io.Writer) error {
	unit, err := s.Unit()
	if err != nil {
		return err
	}
	if !m.noStart {
		if _, err := exec.LookPath("systemctl"); err != nil {
			return errors.New("this machine has no systemd: have it run the command that `service print` shows after ExecStart=")
		}
	}
	if err := s.makeQueue(); err != nil {
		return err
	}
	file := m.unitFile(s.Name)
	if err := os.WriteFile(file+".new", []byte(unit), 0o644); err != nil {
		return fmt.Errorf("write the unit file (as root?): %w", err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		return err
	}
	fmt.Fprintf(out, "wrote %s\n", file)
	if m.noStart {
		return nil
	}
	for _, args := range [][]string{{"daemon-reload"}, {"enable", s.Name}, {"restart", s.Name}} {
		if err := systemctl(ctx, args...); err != nil {
			return err
		}
	}
	fmt.Fprintf(out, "started %s: see systemctl status %s and journalctl -u %s\n", s.Name, s.Name, s.Name)
	return nil
}

// makeQueue makes a queue's folder that systemd does not make, for its user.
func (s Spec) makeQueue() error {
	if s.state() != "" {
		return nil
	}
	if err := os.MkdirAll(s.Queue, 0o750); err != nil {
		return err
	}
	owner, err := user.Lookup(s.User)
	if err != nil {
		return err
	}
	uid, err := strconv.Atoi(owner.Uid)
	if err != nil {
		return err
	}
	gid, err := strconv.Atoi(owner.Gid)
	if err != nil {
		return err
	}
	return os.Chown(s.Queue, uid, gid)
}

func (m *manager) uninstall(ctx context.Context, name string, out io.Writer) error {
	file := m.unitFile(name)
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is no %s", file)
	}
	if !m.noStart {
		if err := systemctl(ctx, "disable", "--now", name); err != nil {
			return err
		}
	}
	if err := os.Remove(file); err != nil {
		return err
	}
	fmt.Fprintf(out, "removed %s; the queue stays where it is\n", file)
	if m.noStart {
		return nil
	}
	return systemctl(ctx, "daemon-reload")
}

func systemctl(ctx context.Context, args ...string) error {
	if text, err := exec.CommandContext(ctx, "systemctl", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("systemctl %v: %w: %s", args, err, text)
	}
	return nil
}

// Run runs a sender; on Windows the service manager may start it.
func Run(ctx context.Context, messages io.Writer, run func(context.Context, io.Writer) error) error {
	return run(ctx, messages)
}
