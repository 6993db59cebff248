// SPDX-License-Identifier: Apache-2.0

package push_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/substorm/substorm/feed-server/archive/archivetest"
	"github.com/substorm/substorm/internal/wire"
)

// Names that rsync could take for comments, and names that say what rsync says of a partner that takes nothing.
func TestNames(t *testing.T) {
	t.Parallel()
	names := []string{
		"#1/frame.jpg", ";2.jpg", "a/#3.jpg", "read only/one.jpg", "auth failed", `he said "auth failed" and left/Host key verification failed`,
		": No space left on device (28)", "x\": No space left on device (28)", "-rf", "@ERROR: access denied",
	}
	l := newLab(t)
	l.toDaemon("")
	l.entry.SafetyStopPercent, l.entry.Template = 100, "{name}/{instrument}"
	var all []wire.Record
	want := map[string]string{}
	for i, name := range names {
		all = append(all, l.Put(archivetest.Camera, name, name, named(name), at(storm.Add(time.Duration(i)*time.Minute))))
		want[name+"/allsky-1"] = name
	}
	l.Wait(all[len(all)-1])
	l.push(int64(len(names)))
	l.want("all", want)
	l.verifyOnly = true
	if err := l.run(); err != nil {
		t.Errorf("verified: %v", err)
	}
	l.verifyOnly = false
	for i := range all {
		l.become(&all[i], wire.StateRetracted, "a lamp")
	}
	l.Wait(l.Put(archivetest.Camera, "last.jpg", "last", named("last.jpg"), at(storm.Add(time.Hour))))
	l.push(1)
	l.want("nothing but the last", map[string]string{"last.jpg/allsky-1": "last"})
}

// A copy that the partner lacks is found missing, also where its name begins as a comment does.
func TestNamesVerified(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	dir := l.toDaemon("")
	l.entry.Template = "{name}/{instrument}"
	l.Wait(l.Put(archivetest.Camera, "#1", "one", named("#1"), at(storm)))
	l.push(1)
	if err := os.Remove(filepath.Join(dir, "#1", "allsky-1")); err != nil {
		t.Fatal(err)
	}
	l.verifyOnly = true
	if err := l.run(); err == nil || l.last.Differing() != 1 {
		t.Errorf("%v, %d differ", err, l.last.Differing())
	}
}
