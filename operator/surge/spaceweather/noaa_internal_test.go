// SPDX-License-Identifier: Apache-2.0

package spaceweather

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/substorm/substorm/operator/surge"
)

// noaa is a server that plays NOAA, as the test has it answer. It has the address of a loopback, which its URL names.
type noaa struct {
	*httptest.Server
	answer atomic.Pointer[http.HandlerFunc]
	asked  atomic.Int64
}

func newNOAA(t *testing.T) *noaa {
	t.Helper()
	n := &noaa{}
	n.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n.asked.Add(1)
		(*n.answer.Load())(w, r)
	}))
	t.Cleanup(n.Close)
	return n
}

func (n *noaa) answers(h http.HandlerFunc) { n.answer.Store(&h) }

// says has the server answer a document.
func (n *noaa) says(body string) {
	n.answers(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, body)
	})
}

// storm is the beginning of the night of the examples.
var storm = time.Date(2026, 8, 30, 22, 30, 0, 0, time.UTC)

// Products in the shapes that SWPC has published.
const (
	kpObjects = `[{"time_tag":"2026-08-30T15:00:00","Kp":2.33,"a_running":9,"station_count":8},
{"time_tag":"2026-08-30T18:00:00","Kp":4.67,"a_running":15,"station_count":8},
{"time_tag":"2026-08-30T21:00:00","Kp":7.33,"a_running":22,"station_count":8}]`
	kpTable = `[["time_tag","Kp","a_running","station_count"],
["2026-08-30 15:00:00.000","2.33","9","8"],["2026-08-30 18:00:00.000","4.67","15","8"],["2026-08-30 21:00:00.000","7.33","22","8"]]`
	magTable = `[["time_tag","bx_gsm","by_gsm","bz_gsm","lon_gsm","lat_gsm","bt"],
["2026-08-30 22:27:00.000","-2.17","1.43","-11.20","146.68","-16.76","12.72"],
["2026-08-30 22:28:00.000",null,null,null,null,null,null],
["2026-08-30 22:29:00.000","-2.17","1.43","-14.50","146.68","-16.76","15.72"]]`
	plasmaTable = `[["time_tag","density","speed","temperature"],
["2026-08-30 22:28:00.000","3.09","576.9","240340"],["2026-08-30 22:29:00.000","3.19","601.5","240340"]]`
	magObjects = `[
{"time_tag":"2026-08-30T22:29:02","active":false,"source":"IMAP","range":null,"manual_mode":false,"sample_size":60,"bt":2.72,"bz_gse":-0.54,"bz_gsm":-0.78,"overall_quality":0},
{"time_tag":"2026-08-30T22:28:03","active":true,"source":"SOLAR1","range":null,"manual_mode":false,"sample_size":60,"bt":12.72,"bz_gse":-9.54,"bz_gsm":-12.25,"overall_quality":0},
{"time_tag":"2026-08-30T22:28:00","active":false,"source":"ACE","range":null,"manual_mode":false,"sample_size":60,"bt":2.72,"bz_gse":-0.54,"bz_gsm":3.5,"overall_quality":0},
{"time_tag":"2026-08-30T22:27:01","active":true,"source":"SOLAR1","range":null,"manual_mode":false,"sample_size":60,"bt":12.72,"bz_gse":-9.54,"bz_gsm":null,"overall_quality":0},
{"time_tag":"2026-08-30T22:26:01","active":true,"source":"SOLAR1","range":null,"manual_mode":false,"sample_size":60,"bt":12.72,"bz_gse":-9.54,"bz_gsm":-11.0,"overall_quality":0}]`
	windObjects = `[
{"time_tag":"2026-08-30T22:29:00","active":true,"source":"SOLAR1","proton_speed":612.9,"proton_temperature":24034,"proton_density":3.09,"alpha_speed":null,"max_data_flag":0,"overall_quality":0},
{"time_tag":"2026-08-30T22:29:00","active":false,"source":"ACE","proton_speed":-9999.9,"proton_temperature":-99999,"proton_density":-9999.9,"alpha_speed":null,"max_data_flag":0,"overall_quality":0}]`
)

// told formats samples as in a test's table.
func told(samples []surge.Sample) string {
	var all []string
	for _, s := range samples {
		text := fmt.Sprintf("%s+%v=%v", s.From.Format("15:04"), s.To.Sub(s.From), s.Value)
		if s.Spacecraft != "" {
			text += " " + s.Spacecraft
		}
		all = append(all, text)
	}
	return strings.Join(all, ", ")
}

// inOrder fails unless samples are as package surge wants them.
func inOrder(t *testing.T, samples []surge.Sample) {
	t.Helper()
	for i, s := range samples {
		if !s.From.Before(s.To) {
			t.Fatalf("sample %d lasts from %v to %v", i, s.From, s.To)
		}
		if i > 0 && samples[i-1].To.After(s.From) {
			t.Fatalf("sample %d from %v overlaps the one before it, to %v", i, s.From, samples[i-1].To)
		}
	}
}
