// SPDX-License-Identifier: Apache-2.0

//go:build linux

package doctor

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/substorm/substorm/cli/up"
)

// says fails where a check is not as wanted: with this result, these words in what it says, and something to do where it is not well.
func says(t *testing.T, c Check, want Result, words ...string) {
	t.Helper()
	said := c.Found + ": " + c.Advice
	for _, w := range words {
		if !strings.Contains(said, w) {
			t.Errorf("%s lacks %q: %s %s", c.Check, w, c.Result, said)
		}
	}
	if c.Result != want || (c.Advice == "") != (want == OK) {
		t.Errorf("%s is %s, want %s: %s", c.Check, c.Result, want, said)
	}
}

func kernelSays(status int32, err error) func(*unix.Timex) (int, error) {
	return func(x *unix.Timex) (int, error) {
		x.Status, x.Maxerror = status, 1500
		return 0, err
	}
}

func TestClock(t *testing.T) {
	now := time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	synced, never := kernelSays(unix.STA_PLL, nil), time.Time{}
	says(t, clock(now, never, never, "", synced), OK, "2026-11-25T12:00:00Z", "synchronised to 1.5ms")
	says(t, clock(now, now.Add(-time.Hour), now.Add(time.Second), "lock", synced), OK)
	says(t, clock(now, never, never, "", kernelSays(unix.STA_UNSYNC, nil)), Warning, "nobody synchronises it", "chrony")
	says(t, clock(now, never, never, "", kernelSays(0, unix.EPERM)), Warning, "not permitted", "outside the service's sandbox")
	says(t, clock(time.Unix(12, 0), never, never, "", synced), Failed, "1970-01-01T00:00:12Z", "never set", "timedatectl")
	says(t, clock(now, now.Add(time.Minute), never, "", synced), Failed, "this program is of 2026-11-25T12:01:00Z", "timedatectl")
	says(t, clock(now, never, now.Add(time.Minute), "/data/lock", synced), Failed, "/data/lock was written at 2026-11-25T12:01:00Z", "goes backward")
}

// TestNewestFile: a file of the data folder was written in what the clock says is the future.
func TestNewestFile(t *testing.T) {
	dir := t.TempDir()
	deep := filepath.Join(dir, "api", "log")
	if err := os.MkdirAll(deep, 0o700); err != nil {
		t.Fatal(err)
	}
	future := time.Now().Add(time.Hour).Truncate(time.Second)
	for _, name := range []string{filepath.Join(dir, "lock"), filepath.Join(deep, "1")} {
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chtimes(filepath.Join(deep, "1"), future, future); err != nil {
		t.Fatal(err)
	}
	newest, file := newestFile(dir)
	if !newest.Equal(future) || file != filepath.Join(deep, "1") {
		t.Errorf("the newest file is %s of %v", file, newest)
	}
	says(t, clock(time.Now(), time.Time{}, newest, file, kernelSays(0, nil)), Failed, file, "goes backward")
	if newest, file := newestFile(filepath.Join(dir, "none")); !newest.IsZero() || file != "" {
		t.Errorf("a folder that is not there has %s of %v", file, newest)
	}
}

// ofSpeed is a disk with syncs that take so long.
func ofSpeed(k kind, took time.Duration) disk {
	return disk{filesystem: filesystem{kind: k, name: "ext4 on /dev/sda1", size: 2 << 40, free: 1 << 40, files: 1 << 20, freeFiles: 1 << 20},
		speed: speed{small: []time.Duration{took, took, 2 * took}, large: 3 * took}}
}

// TestDisks: what is said of disks that cannot be had for a test.
func TestDisks(t *testing.T) {
	const ms = time.Millisecond
	with := func(d disk, change func(*disk)) disk { change(&d); return d }
	unsafe := with(ofSpeed(onDisk, 5*ms), func(d *disk) { d.unsafe = "nobarrier" })
	fails := with(ofSpeed(onDisk, 0), func(d *disk) { d.speed, d.unmeasured = speed{}, errors.New("input/output error") })
	for name, c := range map[string]struct {
		disk           disk
		sync, powerCut Result
		syncs, cut     []string
	}{
		"a disk":              {ofSpeed(onDisk, 5*ms), OK, OK, []string{"5ms", "worst 10ms", "8 MiB after 15ms"}, []string{"nothing that was receipted would be lost", "5ms on ext4", "sent again"}},
		"in memory":           {ofSpeed(inMemory, time.Microsecond), Warning, Failed, []string{"in memory"}, []string{"everything in /data would be lost", "--data-dir"}},
		"too fast":            {ofSpeed(onDisk, 2*time.Microsecond), Warning, Warning, []string{"no disk is so fast", "cache=unsafe"}, []string{"may be lost"}},
		"too slow":            {ofSpeed(onDisk, 900*ms), Warning, OK, []string{"each receipt waits"}, []string{"nothing"}},
		"mounted unsafely":    {unsafe, Warning, Warning, []string{"without nobarrier"}, []string{"may be lost"}},
		"of another computer": {ofSpeed(elsewhere, 5*ms), OK, Warning, []string{"5ms"}, []string{"not decided on this computer", "disk of this computer"}},
		"of a container":      {ofSpeed(ofContainer, 5*ms), Warning, OK, []string{"mount a volume"}, []string{"nothing"}},
		"failing":             {fails, Failed, Warning, []string{"input/output error", "dmesg"}, []string{"not known"}},
	} {
		t.Run(name, func(t *testing.T) {
			says(t, c.disk.sync(), c.sync, c.syncs...)
			says(t, powerCut("/data", c.disk, declared{}), c.powerCut, c.cut...)
		})
	}
	well := ofSpeed(onDisk, ms)
	says(t, well.space(), OK, "1.0 TiB of 2.0 TiB", "1,048,576 of 1,048,576 files")
	says(t, with(well, func(d *disk) { d.files, d.freeFiles = 0, 0 }).space(), OK, "1.0 TiB") // Btrfs counts none
	says(t, with(well, func(d *disk) { d.free = 100 << 20 }).space(), Warning, "100 MiB of", "archive.expiry")
	says(t, with(well, func(d *disk) { d.free = 0 }).space(), Failed, "0 B of", "free some")
	says(t, with(well, func(d *disk) { d.freeFiles = 100 }).space(), Warning, "100 of 1,048,576 files", "inodes")
	says(t, with(well, func(d *disk) { d.freeFiles = 0 }).space(), Failed, "0 of 1,048,576 files", "inodes")
}

func TestRights(t *testing.T) {
	mine := folder{path: "/data", owner: 1000}
	says(t, judgeRights("this process", mine, false, standing{1000, 0o022, 65536}), OK, "user 1000", "umask 0022", "65536 open files")
	says(t, judgeRights("the Site", mine, true, standing{1000, 0o022, 1024}), Warning, "1024 open files", "LimitNOFILE=")
	says(t, judgeRights("the Site", folder{}, true, standing{0, 0o022, 65536}), Warning, "no rights of root")
	says(t, judgeRights("this process", mine, false, standing{0, 0o022, 65536}), Warning, "root may do what the Site may not", "run substorm up as user 1000")
	says(t, judgeRights("this process", folder{path: "/data", owner: -1}, false, standing{0, 0o022, 65536}), OK, "needs no rights of root")
	says(t, judgeRights("the Site", mine, true, standing{1000, 0o477, 65536}), Failed, "umask 0477", "0077")
	says(t, judgeMemory(2<<30, 0, false), OK, "2.0 GiB are left")
	says(t, judgeMemory(100<<20, 0, false), Warning, "100 MiB", "256 MiB should be left")
	says(t, judgeMemory(100<<20, 0, true), OK)
	says(t, judgeMemory(2<<30, 64<<20, false), Warning, "64 MiB", "MemoryMax=")
}

const problems = `
apiVersion: substorm.dev/v1alpha1
kind: Site
metadata: {name: hub}
spec: {code: hub}
---
apiVersion: substorm.dev/v1alpha1
kind: Instrument
metadata: {name: camera}
spec:
  siteRef: {name: hub}
  telescope: large
  listeners: [{name: a, protocol: TCP, port: 30101}, {name: b, protocol: UDP, port: 30101}, {name: c, protocol: HTTP, port: 30102}]
---
apiVersion: substorm.dev/v1alpha1
kind: Instrument
metadata: {name: retired}
spec: {siteRef: {name: hub}, state: Retired, listeners: [{name: a, protocol: TCP, port: 30103}]}
---
apiVersion: substorm.dev/v1alpha1
kind: Instrument
metadata: {name: picture}
spec: {siteRef: {name: hub}, listeners: [{name: c, protocol: HTTP, port: 30102}]}
---
apiVersion: substorm.dev/v1alpha1
kind: Instrument
metadata: {name: words}
spec: {siteRef: {name: hub}, listeners: [{name: a, protocol: TCP, port: many}]}
---
apiVersion: substorm.dev/v1alpha1
kind: FeedServer
metadata: {name: one}
spec: {siteRef: {name: hub}}
---
apiVersion: substorm.dev/v1alpha1
kind: FeedServer
metadata: {name: two}
spec: {siteRef: {name: hub}, rsync: {}}
`

// TestManifests: what is wrong is said with its place, and the ports of all that can be read are known.
func TestManifests(t *testing.T) {
	file := filepath.Join(t.TempDir(), "site.yaml")
	if err := os.WriteFile(file, []byte(problems), 0o600); err != nil {
		t.Fatal(err)
	}
	objects, err := up.Declared([]string{file}, "default")
	if err != nil {
		t.Fatal(err)
	}
	d, checks := decode(objects)
	if len(checks) != 1 {
		t.Fatalf("%d checks: %v", len(checks), checks)
	}
	says(t, checks[0], Warning, file+`:7: Instrument "camera"`, "spec.telescope", "kubectl explain")
	var got []string
	for _, p := range d.ports("127.0.0.1:8080", "127.0.0.1:9464") {
		got = append(got, p.String()+" at "+p.address+" of "+strings.Join(p.of, " and "))
	}
	want := []string{
		"8080/tcp at 127.0.0.1:8080 of a FeedServer (--listen)", "8081/tcp at 127.0.0.1:8081 of a FeedServer (--listen)",
		"8873/tcp at 127.0.0.1:8873 of rsync of a FeedServer (spec.rsync)", "9464/tcp at 127.0.0.1:9464 of metrics (--listen-metrics)",
		`30101/tcp at :30101 of Instrument "camera"`, `30101/udp at :30101 of Instrument "camera"`,
		`30102/tcp at :30102 of Instrument "camera" and Instrument "picture"`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("ports:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if !d.receivesDatagrams() {
		t.Error("it does not say that datagrams are received")
	}

	for text, wanted := range map[string][]string{
		problems:                    {file + ":28: ", "spec.listeners", "keeps what was declared before"},
		"apiVersion: v1\nkind: [\n": {file + ":"},
		"apiVersion: v1\nkind: Secret\nmetadata: {name: s}\n": {"no Site is declared in " + file},
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, checks := lookAtManifests(t.Context(), []string{file})
		i := slices.IndexFunc(checks, func(c Check) bool { return c.Result == Failed && strings.Contains(c.Found, wanted[0]) })
		if i < 0 {
			t.Errorf("%q: %v", wanted, checks)
			continue
		}
		says(t, checks[i], Failed, wanted...)
	}
	d, checks = lookAtManifests(t.Context(), nil)
	says(t, checks[0], OK, "built in")
	if all := d.ports("127.0.0.1:8080", "127.0.0.1:9464"); len(all) != 4 { // the quarantine's, over TCP and UDP, the FeedServer's and metrics'
		t.Errorf("ports of the Site that is built in: %v", all)
	}
}
