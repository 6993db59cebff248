// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/substorm/substorm/bench/internal/load"
	"github.com/substorm/substorm/bench/internal/receiver"
	"github.com/substorm/substorm/internal/wire"
)

// stages sum up where receipts of one size spent their time, as the gateway's own
// histograms say.
type stages struct {
	gateway *receiver.Process
	// seconds and requests of the PUT and of the notice's commit.
	put, commit, puts, commits float64
}

// series are the histograms of the two stages.
var series = [2]string{"substorm_gateway_store_seconds_%s{operation=\"put\"}", "substorm_stream_commit_seconds_%s{stream=\"" + wire.NoticeStream(receiver.SiteCode) + "\"}"}

// during carries an order out and, where it went through the gateway, adds what
// the histograms gained.
func (s *stages) during(through bool, send func() (load.Outcome, error)) (load.Outcome, error) {
	if !through {
		return send()
	}
	before, err := s.read()
	if err != nil {
		return load.Outcome{}, err
	}
	out, err := send()
	if err != nil {
		return out, err
	}
	after, err := s.read()
	for i, sum := range []*float64{&s.put, &s.puts, &s.commit, &s.commits} {
		*sum += after[i] - before[i]
	}
	return out, err
}

// read returns sum and count of both stages.
func (s *stages) read() (values [4]float64, err error) {
	for i, name := range series {
		for j, part := range []string{"sum", "count"} {
			if values[2*i+j], err = s.gateway.Metric(fmt.Sprintf(name, part)); err != nil {
				return values, err
			}
		}
	}
	return values, nil
}

// String tells both.
func (s *stages) String() string {
	return fmt.Sprintf("%.1f ms in the PUT, %.1f ms until JetStream has the notice synced", 1000*s.put/s.puts, 1000*s.commit/s.commits)
}
