// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package https

import "net"

// infoOf knows nothing here.
func infoOf(*net.TCPConn) (tcpInfo, bool) { return tcpInfo{}, false }
