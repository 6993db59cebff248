// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"encoding/json"
	"strings"

	"github.com/substorm/substorm/internal/wire"
)

// announced says whether the stream of notices has each object that was archived before the move, once.
func (m *move) announced() {
	m.t.Helper()
	var archived []wire.Notice
	for line := range strings.Lines(m.run("substorm archive ls -o json")) {
		n, err := wire.Decode[wire.Notice]([]byte(line))
		if err != nil {
			m.t.Fatal(err)
		}
		archived = append(archived, n)
	}
	s, err := m.nats.JetStream(m.t).Stream(m.t.Context(), wire.NoticeStream("try"))
	if err != nil {
		m.t.Fatal(err)
	}
	times := map[string]int{}
	for sequence := uint64(1); sequence <= s.CachedInfo().State.LastSeq; sequence++ {
		msg, err := s.GetMsg(m.t.Context(), sequence)
		if err != nil {
			m.t.Fatal(err)
		}
		if strings.HasPrefix(msg.Subject, "notice.") {
			times[msg.Header.Get(wire.HeaderID)]++
		}
	}
	for _, n := range archived {
		if times[n.MessageID()] != 1 {
			text, _ := json.Marshal(n)
			m.t.Errorf("announced %d times: %s", times[n.MessageID()], text)
		}
	}
	if len(times) != len(archived) {
		m.t.Errorf("%d notices of %d objects", len(times), len(archived))
	}
}
