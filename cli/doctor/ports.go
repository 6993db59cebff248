// SPDX-License-Identifier: Apache-2.0

//go:build linux

package doctor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// ports looks whether a Site can listen at its ports. Holder is the process of the Site that runs, or 0; named says that files say which
// ports these are.
func ports(all []port, holder int, named bool) []Check {
	var well []string
	var checks []Check
	for _, p := range all {
		if c := lookAtPort(p, holder, named); c.Result == OK {
			well = append(well, c.Found)
		} else {
			checks = append(checks, c)
		}
	}
	if len(well) > 0 {
		checks = append([]Check{fine("ports", "%s", strings.Join(well, ", "))}, checks...)
	}
	return checks
}

// lookAtPort listens at a port for a moment. The result for a port that is fine is a few words.
func lookAtPort(p port, holder int, named bool) Check {
	const check = "ports"
	of := strings.Join(p.of, ", ")
	err := try(p)
	switch {
	case err == nil && holder != 0 && named:
		return warning(check, "substorm status says what its Instruments lack; a Site that runs with other files has other ports",
			"%s of %s: nobody listens, and the Site runs (process %d)", p, of, holder)
	case err == nil && p.number < firstUnprivileged() && os.Geteuid() == 0:
		return warning(check, privileged, "%s of %s is free, and for privileged processes only, as this one is", p, of)
	case err == nil:
		return fine(check, "%s is free", p)
	case errors.Is(err, unix.EADDRINUSE):
		return occupied(p, of, holder)
	case errors.Is(err, unix.EACCES):
		return failed(check, privileged, "%s of %s is for privileged processes only", p, of)
	case errors.Is(err, unix.EADDRNOTAVAIL):
		return failed(check, "name an address of it with --listen, or none, as in :8080, for all of them", "%s of %s: this computer has no address %s", p, of, p.address)
	default:
		return failed(check, "choose another port", "%s of %s: %v", p, of, err)
	}
}

const privileged = "choose a port from net.ipv4.ip_unprivileged_port_start on, or give the service CAP_NET_BIND_SERVICE (docs/how-to/station-service.md)"

// try listens at a port, and closes it.
func try(p port) error {
	var config net.ListenConfig
	if p.network == "udp" {
		c, err := config.ListenPacket(context.Background(), p.network, p.address)
		if err != nil {
			return err
		}
		return c.Close()
	}
	l, err := config.Listen(context.Background(), p.network, p.address)
	if err != nil {
		return err
	}
	return l.Close()
}

// occupied says who has a port.
func occupied(p port, of string, holder int) Check {
	owners, users := ownersOf(p)
	if holder != 0 && slices.Contains(owners, holder) {
		return fine("ports", "%s is held by the Site itself", p)
	}
	if len(owners) > 0 {
		return failed("ports", "stop it, or choose another port", "%s of %s is in use by %s", p, of, names(owners))
	}
	if user, known := userOf(holder); known && slices.Contains(users, user) {
		return fine("ports", "%s is held by user %d, as whom the Site runs", p, user)
	}
	return failed("ports", "run substorm doctor as root, and it names the process", "%s of %s is in use by a process of another user", p, of)
}

// names names processes.
func names(pids []int) string {
	var all []string
	for _, pid := range pids {
		name, err := command(pid)
		if err != nil {
			name = "which has ended since"
		}
		all = append(all, fmt.Sprintf("process %d (%s)", pid, name))
	}
	return strings.Join(all, " and ")
}
