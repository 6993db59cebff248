// SPDX-License-Identifier: Apache-2.0

package load_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/substorm/substorm/bench/internal/load"
	"github.com/substorm/substorm/bench/internal/receiver"
	"github.com/substorm/substorm/internal/testenv"
)

func TestMain(m *testing.M) {
	receiver.Main()
	load.Main()
	os.Exit(m.Run())
}

// TestReceivers: each answers as it should, however objects come; a wrong answer is an error.
func TestReceivers(t *testing.T) {
	g := load.Start(t, nil)
	for kind, answer := range map[receiver.Kind]load.Answer{
		receiver.Old: load.Word, receiver.Static: load.Word, receiver.Hash: load.Receipt, receiver.Gateway: load.Receipt,
	} {
		p := receiver.Start(t, receiver.Options{Kind: kind, Port: testenv.FreePort(t), Dir: t.TempDir()})
		o := load.Order{Address: p.Address, Answer: answer, Size: 100_000, Senders: 3}
		flat, held, paced, wrong := o, o, o, o
		flat.Digests, paced.Digests = true, true
		held.Hold, held.Process = true, p.PID()
		paced.Rate, paced.Duration = 100, 300*time.Millisecond
		if wrong.Answer = load.Word; answer == load.Word {
			wrong.Answer = load.Receipt
		}
		both := load.Order{All: []load.Order{flat, paced}}
		for name, o := range map[string]load.Order{"flat out": flat, "held": held, "at a rate": paced, "both at once": both} {
			out, err := g.Send(o)
			if err != nil || out.Objects < 3 {
				t.Errorf("%s, %s: %+v, %v", kind, name, out, err)
			}
			if told := len(out.Digests); (o.Digests || o.All != nil) && int64(told) != out.Objects {
				t.Errorf("%s, %s: %d objects, and digests of %d", kind, name, out.Objects, told)
			}
			if o.Hold && out.Open < 3 {
				t.Errorf("%s, %s: %+v", kind, name, out)
			}
			if o.Rate > 0 && (out.P50 <= 0 || out.P99 < out.P50) {
				t.Errorf("%s, %s: %+v", kind, name, out)
			}
		}
		if _, err := g.Send(wrong); err == nil || !strings.Contains(err.Error(), "the receiver said") {
			t.Errorf("%s: of a wrong answer: %v", kind, err)
		}
		if peak, err := p.PeakMiB(); err != nil || peak < 1 || receiver.OpenFiles(p.PID()) < 3 {
			t.Errorf("%s: peak %g MiB, %v, %d files", kind, peak, err, receiver.OpenFiles(p.PID()))
		}
	}
}

// TestSite: the whole gateway, and its bucket.
func TestSite(t *testing.T) {
	g, backends := load.Start(t, nil), receiver.StartBackends(t)
	p := receiver.StartSite(t, backends, receiver.Options{})
	for name, o := range map[string]load.Order{
		"gateway": {Address: p.Address, Answer: load.Receipt, Size: 50_000, Senders: 2},
		"store":   {Objects: &backends.Bucket, Size: 50_000, Senders: 2},
	} {
		if out, err := g.Send(o); err != nil || out.Objects < 2 {
			t.Errorf("%s: %+v, %v", name, out, err)
		}
	}
}
