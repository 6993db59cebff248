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
	var stats *unix.TCPInfo
	if controlled := raw.Control(func(fd uintptr) { stats, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO) }); controlled != nil || err != nil {
		return info, false
	}
	micros := stats.Rtt
	if stats.Min_rtt > 0 {
		micros = stats.Min_rtt
	}
	return tcpInfo{time.Duration(micros) * time.Microsecond, stats.Bytes_received, uint64(stats.Segs_out), uint64(stats.Total_retrans)}, true
}
