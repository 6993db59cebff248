// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// models are the studies' traffic, by the name that --model takes.
var models = map[string]func() Model{"rtemp": rtemp, "uarc": uarc, "oasis": oasis, "evlbi": evlbi}

// rtemp: the object sizes of Liu, Picard, Williamson, "Scalability Issues for
// Remote Sensing Infrastructure: A Case Study" (Sensors, 2017), table 1: 32 KB
// doubled up to 8192 KB, each sender as fast as the server lets it.
func rtemp() Model {
	s := Source{Name: "camera"}
	for kib := int64(32); kib <= 8192; kib *= 2 {
		s.Sizes = append(s.Sizes, *resource.NewQuantity(kib<<10, resource.BinarySI))
	}
	return Model{Name: "rtemp", About: "RTEMP study, table 1: 32 KiB doubled to 8 MiB, one after another from each sender", Sources: []Source{s}}
}

// uarc: the campaign of Malan, Jahanian, Rasmussen, Knoop, "Performance of a
// Distributed Object-Based Internet Collaboratory" (1996), figure 12.
func uarc() Model {
	every := func(name string, size int64, d time.Duration) Source {
		return Source{Name: name, Sizes: bytes(size), Every: &metav1.Duration{Duration: d}}
	}
	return Model{Name: "uarc", About: "UARC campaign, figure 12: four instruments, 1.4 kB/s in all", Sources: []Source{
		every("fabry-perot", 250, 3*time.Minute),
		every("magnetometer", 1500, time.Minute),
		every("radar", 5300, 5*time.Second),
		every("all-sky", 20_000, time.Minute),
	}}
}

// oasis: the probes of Puranik, "Real-time Monitoring of Distributed Real-time
// and Embedded Systems using Web" (2013), experiment 3: how many of each were
// sent in one minute at full rate.
func oasis() Model {
	probe := func(name string, size int64, perMinute float64) Source {
		return Source{Name: name, Protocol: UDP, Sizes: bytes(size), Rate: perMinute / 60}
	}
	return Model{Name: "oasis", About: "OASIS, experiment 3: processor and memory probes, 161,638 messages a minute", Sources: []Source{
		probe("processor", 140, 94_294),
		probe("memory", 236, 67_344),
	}}
}

// evlbi: Sansa, Szomoru, van der Hulst, "A Simulation model for e-VLBI traffic
// on network links in the Netherlands" (2006): bursts and idle times are
// exponential with a mean of 500 ms, the rate within a burst is constant. That
// rate is chosen so that the mean flow is the study's, 374.5 Mb/s; --rate 59.6
// makes the bursts 1 Gb/s.
func evlbi() Model {
	const piece = 1 << 20
	half := metav1.Duration{Duration: 500 * time.Millisecond}
	return Model{Name: "evlbi", About: "e-VLBI study: exponential bursts and silence of 500 ms, 374.5 Mb/s on average, in pieces of 1 MiB", Sources: []Source{{
		Name: "vlbi", Sizes: []resource.Quantity{*resource.NewQuantity(piece, resource.BinarySI)},
		Rate: 2 * 374.5e6 / 8 / piece, Bursts: &Bursts{Lasting: half, Silence: half},
	}}}
}

func bytes(n int64) []resource.Quantity {
	return []resource.Quantity{*resource.NewQuantity(n, resource.DecimalSI)}
}

// Load returns the model of that name, or the one that a YAML file describes.
func Load(name string) (Model, error) {
	if f, ok := models[name]; ok {
		m := f()
		return m, m.check()
	}
	text, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return Model{}, fmt.Errorf("--model %s is neither a file nor one of %s", name, strings.Join(slices.Sorted(maps.Keys(models)), ", "))
	}
	if err != nil {
		return Model{}, fmt.Errorf("--model: %w", err)
	}
	m, err := parse(text)
	m.Name = cmp.Or(m.Name, name)
	if err == nil {
		err = m.check()
	}
	if err != nil {
		return Model{}, fmt.Errorf("--model %s: %w", name, err)
	}
	return m, nil
}

func parse(text []byte) (Model, error) {
	var m Model
	err := yaml.UnmarshalStrict(text, &m)
	return m, err
}
