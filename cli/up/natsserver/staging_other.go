// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package natsserver

import "context"

// staging is for systems with a file system in memory.
type staging struct{}

// MinBatch is from how many messages on a batch costs fewer synced writes than they do one by one; 0: it is not known.
func (s *Server) MinBatch() int { return 0 }

func newStaging() staging { return staging{} }

func (s *Server) stage(context.Context) {}
func (s *Server) unstage()              {}
