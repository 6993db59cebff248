// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Newest returns a key's value and revision as the leader of the bucket's stream has
// them: what was written before the call is seen. KeyValue.Get is answered by any
// replica, also by one that is behind. Errors: jetstream.ErrKeyNotFound, also where
// the key was deleted; JetStream's.
func Newest(ctx context.Context, js jetstream.JetStream, bucket, key string) (value []byte, revision uint64, err error) {
	ask, err := json.Marshal(map[string]string{"last_by_subj": "$KV." + bucket + "." + key})
	if err != nil {
		return nil, 0, err
	}
	m, err := js.Conn().RequestWithContext(ctx, jetstream.DefaultAPIPrefix+"STREAM.MSG.GET.KV_"+bucket, ask)
	if err != nil {
		return nil, 0, fmt.Errorf("ask the leader for %s of %s: %w", key, bucket, err)
	}
	var answer struct {
		Error   *jetstream.APIError `json:"error"`
		Message *struct {
			Sequence uint64 `json:"seq"`
			Header   []byte `json:"hdrs"`
			Data     []byte `json:"data"`
		} `json:"message"`
	}
	if err := json.Unmarshal(m.Data, &answer); err != nil {
		return nil, 0, fmt.Errorf("the leader's answer about %s of %s: %w", key, bucket, err)
	}
	switch {
	case answer.Error != nil && answer.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound:
		return nil, 0, jetstream.ErrKeyNotFound
	case answer.Error != nil:
		return nil, 0, answer.Error
	case answer.Message == nil:
		return nil, 0, errors.New("the leader answered with no message")
	}
	if len(answer.Message.Header) > 0 {
		header, err := nats.DecodeHeadersMsg(answer.Message.Header)
		if err != nil {
			return nil, 0, fmt.Errorf("the header of %s of %s: %w", key, bucket, err)
		}
		if header.Get("KV-Operation") != "" || header.Get(jetstream.MarkerReasonHeader) != "" { // deleted, purged, expired
			return nil, 0, jetstream.ErrKeyNotFound
		}
	}
	return answer.Message.Data, answer.Message.Sequence, nil
}
