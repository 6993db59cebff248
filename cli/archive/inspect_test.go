// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/testenv"
	"github.com/substorm/substorm/internal/wire"
)

// TestInspect: by digest, path, name and key, what is known of an object is shown.
func TestInspect(t *testing.T) {
	f := newFixture(t, testenv.MinIOOptions{})
	at := noon.Add(3 * time.Hour)
	first := put(t, f.store, "plots", "plot 1", at)
	first.Name, first.State = "day.png", wire.StateSuperseded
	second := put(t, f.store, "plots", "plot 2", at.Add(time.Hour))
	second.Name, second.Version, second.Supersedes, second.Looks = "day.png", 2, first.ID, "text/plain"
	gone := put(t, f.store, "plots", "plot 3", at.Add(2*time.Hour))
	gone.State, gone.PurgedAt, gone.Reason, gone.ChangedBy = wire.StatePurged, &at, "a person is in it", "ann"
	lost := put(t, f.store, "plots", "plot 4", at.Add(3*time.Hour))
	list(t, f.store, "plots", "2026-11-21", 1, first, second, gone, lost)
	if err := f.store.Delete(t.Context(), lost.Key); err != nil {
		t.Fatal(err)
	}
	flags := f.flags(t)
	for name, c := range map[string]struct {
		named string
		says  []string
	}{
		"by digest": {f.frame.Digest.String(), []string{"instrument  allsky-1", "state       Current", "from        192.0.2.7:40001",
			"gateway     gateway-0, its incarnation one", "bytes       " + f.frame.Key, "duplicate   received 2026-11-21T12:00:00.123456789Z from 192.0.2.7:40001 by gateway-0, a duplicate: " + f.duplicate.ID}},
		"by some of it":  {strings.ToUpper(f.frame.Digest.String()[:9]), []string{"sha-256     " + f.frame.Digest.String()}},
		"by key":         {f.segment.Key, []string{"600 datagrams of channel raw"}},
		"by path":        {"allsky-1/" + f.frame.Published(), []string{f.frame.Digest.String(), "a duplicate: " + f.duplicate.ID}},
		"by name":        {"day.png", []string{"version     1: sha-256 " + first.Digest.String() + ", Superseded", "version     2: sha-256 " + second.Digest.String() + ", Current", "replaces    " + first.ID, "looks like  text/plain: "}},
		"what is purged": {gone.Digest.String(), []string{"state       Purged at 2026-11-21T15:00:00.123456789Z by ann: a person is in it", "bytes       none"}},
		"what is lost":   {lost.Digest.String(), []string{"bytes       MISSING"}},
	} {
		out, err := call(t, Command(), append(append([]string{"inspect"}, flags...), c.named)...)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, want := range c.says {
			if !strings.Contains(out, want) {
				t.Errorf("%s: lacks %q:\n%s", name, want, out)
			}
		}
	}
	out, err := call(t, Command(), append(append([]string{"inspect"}, flags...), "day.png", "-o", "json")...)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	var newest Known
	if err == nil {
		err = json.Unmarshal([]byte(lines[0]), &newest)
	}
	if err != nil || len(lines) != 2 || newest.Record.ID != second.ID || len(newest.Versions) != 2 || !newest.Bytes.There {
		t.Errorf("as JSON: %v\n%s", err, out)
	}
	if _, err := call(t, Command(), append(append([]string{"inspect"}, flags...), "nobody.png")...); err == nil || !strings.Contains(err.Error(), "lists nothing under") {
		t.Errorf("of nothing: %v", err)
	}
	if _, err := call(t, Command(), append(append([]string{"inspect"}, flags...), f.duplicate.ID)...); err == nil || !strings.Contains(err.Error(), "duplicate of "+f.frame.ID) {
		t.Errorf("of a duplicate: %v", err)
	}
	if _, err := call(t, Command(), append(append([]string{"inspect"}, flags...), f.frame.Digest.String(), "--day", "2026-11-20")...); err == nil {
		t.Error("of another day")
	}
}
