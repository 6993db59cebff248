// SPDX-License-Identifier: Apache-2.0

package wan

import (
	"fmt"
	"os/exec"
	"strconv"
	"testing"

	"github.com/substorm/substorm/internal/testenv"
)

// Iperf3 starts a server of iperf3, which takes one client and may not listen yet, and runs until stop is called.
func Iperf3(l testing.TB) (port string, stop func(), err error) {
	port = strconv.Itoa(testenv.FreePort(l))
	server := exec.Command("iperf3", "-s", "-1", "-p", port)
	if err := server.Start(); err != nil {
		return "", nil, fmt.Errorf("install iperf3: %w", err)
	}
	return port, func() { _ = server.Process.Kill(); _ = server.Wait() }, nil
}
