// SPDX-License-Identifier: Apache-2.0

package https

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// infoOf asks the kernel about a connection.
func infoOf(conn *net.TCPConn) (info tcpInfo, known bool) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return info, false
	}
	var is *unix.TCPInfo
	if controlled := raw.Control(func(fd uintptr) { is, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) }); controlled != nil || err != nil {
		return info, false
	}
	micros := is.Rtt
	if is.Min_rtt > 0 {
		micros = is.Min_rtt
	}
	return tcpInfo{time.Duration(micros) * time.Microsecond, is.Bytes_received, uint64(is.Segs_out), uint64(is.Total_retrans)}, true
}
