// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/accept"
	"github.com/substorm/substorm/operator/plan/finding"
)

// TestJudgedWithNeighbours: whatever Instruments ask for, those that an event touched,
// judged with their neighbours, are judged as with all of the Site.
func TestJudgedWithNeighbours(t *testing.T) {
	pools := []v1alpha1.IngestGateway{pool("a"), pool("b")}
	site := &v1alpha1.Site{ObjectMeta: metav1.ObjectMeta{Name: "hub"}}
	accepted := finding.Finding{Status: metav1.ConditionTrue}
	seed := uint64(time.Now().UnixNano())
	chance := rand.New(rand.NewPCG(seed, 1))
	var instruments []v1alpha1.Instrument
	for i := range 40 {
		instruments = append(instruments, asks(chance, i))
	}
	was := judgedAs(instruments, pools, nil)
	verdicts := accept.Instruments(site, accepted, pools, instruments, nil)
	smaller, changed := 0, 0
	for round := range 500 {
		touched := map[string]bool{}
		var now []accept.Port
		for range 1 + chance.IntN(2) {
			i := chance.IntN(len(instruments))
			instruments[i] = asks(chance, i)
			touched[instruments[i].Name] = true
		}
		for i := range instruments {
			if touched[instruments[i].Name] {
				now = append(now, accept.Ports(&instruments[i], pools)...)
			}
		}
		with := was.neighbours(touched, now)
		part := slices.DeleteFunc(slices.Clone(instruments), func(inst v1alpha1.Instrument) bool { return !with[inst.Name] })
		if len(part) < len(instruments) {
			smaller++
		}
		maps.Copy(verdicts, accept.Instruments(site, accepted, pools, part, nil))
		want := accept.Instruments(site, accepted, pools, instruments, nil)
		if !reflect.DeepEqual(verdicts, want) {
			t.Fatalf("round %d, seed %d: judged with %v: other verdicts than with all: %v", round, seed, slices.Sorted(maps.Keys(with)), differingKeys(verdicts, want))
		}
		for i := range part {
			was.put(part[i].Name, judgedInstrumentOf(&part[i], pools, nil))
			if !want[part[i].Name].OK() {
				changed++
			}
		}
	}
	if smaller == 0 || changed == 0 {
		t.Errorf("seed %d: of 500 rounds %d judged less than all, and %d verdicts were refusals: this proves nothing", seed, smaller, changed)
	}
}

func pool(name string) v1alpha1.IngestGateway {
	return v1alpha1.IngestGateway{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.IngestGatewaySpec{Ports: v1alpha1.PortRange{First: 1, Last: 60}}}
}

// asks is an Instrument that asks for up to three ports, which others may want too.
func asks(chance *rand.Rand, number int) v1alpha1.Instrument {
	inst := v1alpha1.Instrument{ObjectMeta: metav1.ObjectMeta{
		Name: fmt.Sprintf("i%02d", number), CreationTimestamp: metav1.Unix(int64(number), 0), Generation: chance.Int64(),
	}}
	if chance.IntN(8) > 0 {
		inst.Spec.GatewayRef = &v1alpha1.LocalReference{Name: []string{"a", "b", "none"}[chance.IntN(9)/4]}
	}
	if chance.IntN(10) == 0 {
		inst.Spec.State = v1alpha1.InstrumentRetired
	}
	for range chance.IntN(4) {
		l := v1alpha1.Listener{}
		if chance.IntN(2) > 0 {
			l.Sources = []string{fmt.Sprintf("192.0.2.%d/31", chance.IntN(4))}
		}
		l.Name, l.Port = fmt.Sprintf("l%d", len(inst.Spec.Listeners)), int32(1+chance.IntN(60))
		l.Protocol = []v1alpha1.ListenerProtocol{v1alpha1.ListenerTCP, v1alpha1.ListenerUDP, v1alpha1.ListenerHTTP}[chance.IntN(3)]
		inst.Spec.Listeners = append(inst.Spec.Listeners, l)
	}
	return inst
}
