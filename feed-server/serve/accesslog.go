// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"net/http"

	"github.com/substorm/substorm/feed-server/endpoint"
)

// loggedInstruments is how many Instruments a line of the access log names.
const loggedInstruments = 64

// logAccess notes that a connection began or ended that carries what is not for
// everybody.
func (s *Server) logAccess(c *connection, event string) {
	log := s.cfg.Admission.AccessLog()
	if log == nil {
		return
	}
	instruments, why := endpoint.GuardedLive(s.cfg.Registry.Snapshot().Instruments, c.filter.Load().Instruments, c.who.Reader, loggedInstruments)
	if why == "" {
		return
	}
	log.Write(c.request, endpoint.AccessLine{
		Event: event, Reader: c.who.Reader.String(), Address: s.cfg.Admission.AddressOf(c.request),
		Instruments: instruments, Access: why, Status: http.StatusOK, Bytes: c.bytes.Load(),
	})
}
