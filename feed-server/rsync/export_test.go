// SPDX-License-Identifier: Apache-2.0

package rsync

import "github.com/substorm/substorm/feed-server/endpoint"

// BoundSums has the server read no more than so many bytes for the checksums of an address.
func (s *Server) BoundSums(bytes float64) {
	s.budget = endpoint.NewBudget(endpoint.Rate{PerSecond: 1e-3, Burst: int(bytes)}, 1)
}
