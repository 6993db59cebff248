// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// The requests in this file are answered by the leader of a stream. Everything else that
// reads a stream is answered by any of its replicas, also by one that is behind: a consumer,
// a direct get, a watch of a bucket.

// leaderAsk is a request for one message (STREAM.MSG.GET).
type leaderAsk struct {
	Sequence uint64     `json:"seq,omitempty"`
	LastFor  string     `json:"last_by_subj,omitempty"`
	NextFor  string     `json:"next_by_subj,omitempty"`
	Since    *time.Time `json:"start_time,omitempty"`
}

type leaderMessage struct {
	Subject  string `json:"subject"`
	Sequence uint64 `json:"seq"`
	Header   []byte `json:"hdrs"`
	Data     []byte `json:"data"`
}

// askLeader asks the leader of a stream for a message; nil if it has none. If ctx has no
// deadline, the leader has as long as any other request of js.
func askLeader(ctx context.Context, js jetstream.JetStream, name string, what leaderAsk) (*leaderMessage, error) {
	ask, err := json.Marshal(what)
	if err != nil {
		return nil, err
	}
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, js.Options().DefaultTimeout)
		defer cancel()
	}
	m, err := js.Conn().RequestWithContext(ctx, jetstream.DefaultAPIPrefix+"STREAM.MSG.GET."+name, ask)
	if err != nil {
		return nil, fmt.Errorf("ask the leader of stream %s for a message: %w", name, err)
	}
	var answer struct {
		Error   *jetstream.APIError `json:"error"`
		Message *leaderMessage      `json:"message"`
	}
	if err := json.Unmarshal(m.Data, &answer); err != nil {
		return nil, fmt.Errorf("the answer of the leader of stream %s: %w", name, err)
	}
	switch {
	case answer.Error != nil && answer.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound:
		return nil, nil
	case answer.Error != nil:
		return nil, fmt.Errorf("stream %s: %w", name, answer.Error)
	case answer.Message == nil:
		return nil, errors.New("the leader of stream " + name + " answered with no message")
	}
	return answer.Message, nil
}

// NextOf returns the sequence of the first message at or after a sequence whose subject matches, as the leader of the stream has it; 0 if
// there is none. It sees all messages that were stored before the call.
func NextOf(ctx context.Context, js jetstream.JetStream, name, subjects string, from uint64) (uint64, error) {
	subjects = cmp.Or(subjects, ">")
	m, err := askLeader(ctx, js, name, leaderAsk{Sequence: max(1, from), NextFor: subjects})
	if err != nil || m == nil {
		return 0, err
	}
	return m.Sequence, nil
}

// FirstSince returns the sequence of the first message that a stream took at or
// after an instant, or the one after its last.
func FirstSince(ctx context.Context, js jetstream.JetStream, name string, at time.Time) (uint64, error) {
	s, err := js.Stream(ctx, name)
	if err != nil {
		return 0, fmt.Errorf("stream %s: %w", name, err)
	}
	after := s.CachedInfo().State.LastSeq + 1 // as it was before the look: what comes later is younger
	m, err := askLeader(ctx, js, name, leaderAsk{Since: &at, NextFor: ">"})
	switch {
	case err != nil:
		return 0, err
	case m == nil:
		return after, nil
	}
	return m.Sequence, nil
}

// LastOf returns the sequence of the newest message on subjects, 0 where a stream
// has none.
func LastOf(ctx context.Context, js jetstream.JetStream, name, subjects string) (uint64, error) {
	m, err := askLeader(ctx, js, name, leaderAsk{LastFor: subjects})
	if err != nil || m == nil {
		return 0, err
	}
	return m.Sequence, nil
}

// LastHeader returns the header of the newest message on subjects, nil where a stream has
// none.
func LastHeader(ctx context.Context, js jetstream.JetStream, name, subjects string) (nats.Header, error) {
	m, err := askLeader(ctx, js, name, leaderAsk{LastFor: subjects})
	if err != nil || m == nil || len(m.Header) == 0 {
		return nil, err
	}
	header, err := nats.DecodeHeadersMsg(m.Header)
	if err != nil {
		return nil, fmt.Errorf("the header of message %d of %s: %w", m.Sequence, name, err)
	}
	return header, nil
}

// Newest returns a key's value and revision as the leader of the bucket's stream has
// them: what was written before the call is seen. KeyValue.Get is answered by any
// replica, also by one that is behind. Errors: jetstream.ErrKeyNotFound, also where the
// key was deleted, and then with the revision of the deletion; JetStream's.
func Newest(ctx context.Context, js jetstream.JetStream, bucket, key string) (value []byte, revision uint64, err error) {
	m, err := askLeader(ctx, js, "KV_"+bucket, leaderAsk{LastFor: "$KV." + bucket + "." + key})
	switch {
	case err != nil:
		return nil, 0, fmt.Errorf("key %s: %w", key, err)
	case m == nil:
		return nil, 0, jetstream.ErrKeyNotFound
	}
	if len(m.Header) > 0 {
		header, err := nats.DecodeHeadersMsg(m.Header)
		if err != nil {
			return nil, 0, fmt.Errorf("the header of %s of %s: %w", key, bucket, err)
		}
		if header.Get("KV-Operation") != "" || header.Get(jetstream.MarkerReasonHeader) != "" { // deleted, purged, expired
			return nil, m.Sequence, jetstream.ErrKeyNotFound
		}
	}
	return m.Data, m.Sequence, nil
}
