// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"text/tabwriter"

	"github.com/dustin/go-humanize"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/substorm/substorm/cli/backend"
	"github.com/substorm/substorm/cli/kube"
	"github.com/substorm/substorm/internal/wire"
)

// lookAtStreams shows the Site's two streams, and that the newest messages in them are about what was sent.
func (d *demo) lookAtStreams(ctx context.Context, s sent) error {
	b, err := backend.Open(ctx, backend.Options{Flags: kube.Flags{Kubeconfig: d.kubeconfig, Namespace: namespace}})
	if err != nil {
		return err
	}
	defer b.Close()
	js, err := b.JetStream(ctx)
	if err != nil {
		return err
	}
	notices, err := js.Stream(ctx, wire.NoticeStream(b.Code))
	if err != nil {
		return err
	}
	observations, err := js.Stream(ctx, wire.ObservationStream(b.Code))
	if err != nil {
		return err
	}
	if err := printStreams(ctx, notices, observations); err != nil {
		return err
	}
	last, err := notices.GetLastMsgForSubject(ctx, wire.NoticeSubject(b.Code, camera))
	if err != nil {
		return fmt.Errorf("the camera's last notice: %w", err)
	}
	notice, err := wire.Decode[wire.Notice](last.Data)
	if err != nil {
		return err
	}
	if _, ok := s.frames[notice.Digest]; !ok {
		return fmt.Errorf("the camera's last notice in %s is about SHA-256 %s, which was not sent", wire.NoticeStream(b.Code), notice.Digest)
	}
	fmt.Printf("\nthe camera's last notice, %s #%d:\n%s\n", last.Subject, last.Sequence, last.Data)
	last, err = observations.GetLastMsgForSubject(ctx, wire.ObservationSubject(b.Code, magnetometer, "raw"))
	if err != nil {
		return fmt.Errorf("the magnetometer's last message: %w", err)
	}
	var newest wire.Datagram
	count := 0
	for datagram, err := range wire.Datagrams(last.Data) {
		if err != nil {
			return fmt.Errorf("%s #%d: %w", last.Subject, last.Sequence, err)
		}
		newest, count = datagram, count+1
	}
	fmt.Printf("\nthe magnetometer's last message, %s #%d, holds %d datagrams; the last one came from %s:\n%s\n\n",
		last.Subject, last.Sequence, count, newest.Source, newest.Payload)
	return nil
}

func printStreams(ctx context.Context, streams ...jetstream.Stream) error {
	fmt.Println()
	t := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "STREAM\tMESSAGES\tBYTES\tFIRST\tLAST\tROOM")
	for _, stream := range streams {
		info, err := stream.Info(ctx)
		if err != nil {
			return err
		}
		st := info.State
		fmt.Fprintf(t, "%s\t%d\t%s\t%d\t%d\t%s\n", info.Config.Name, st.Msgs, humanize.IBytes(st.Bytes), st.FirstSeq, st.LastSeq,
			humanize.IBytes(uint64(max(0, info.Config.MaxBytes))))
	}
	return t.Flush()
}
