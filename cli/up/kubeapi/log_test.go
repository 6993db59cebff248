// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/substorm/substorm/crds"
)

// secrets is a store of Secrets alone.
func secrets(t *testing.T, dir string) (*store, *table, *bytes.Buffer) {
	t.Helper()
	logged := &bytes.Buffer{}
	kept := &table{name: "secrets", codec: typedCodec(newOf(&corev1.Secret{}))}
	s, err := openStore(dir, []*table{kept}, slog.New(slog.NewTextHandler(logged, nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.close() })
	return s, kept, logged
}

func put(t *testing.T, s *store, kept *table, name, value string) uint64 {
	t.Helper()
	key := types.NamespacedName{Namespace: "default", Name: name}
	_, version, _ := s.get(kept, key)
	if _, err := s.write(kept, key, version, secret(name, value), false); err != nil {
		t.Fatal(err)
	}
	_, version, _ = s.get(kept, key)
	return version
}

func secret(name, value string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Data: map[string][]byte{"value": []byte(value)}}
}

func value(s *store, kept *table, name string) string {
	object, _, found := s.get(kept, types.NamespacedName{Namespace: "default", Name: name})
	if !found {
		return ""
	}
	return string(object.(*corev1.Secret).Data["value"])
}

func TestLogCutAtEveryByte(t *testing.T) {
	dir := t.TempDir()
	s, kept, _ := secrets(t, dir)
	path := filepath.Join(dir, logName)
	var ends []int // of the log, after each value
	for i := range 3 {
		put(t, s, kept, "a", fmt.Sprint(i))
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		ends = append(ends, int(info.Size()))
	}
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for cut := ends[0]; cut <= len(whole); cut++ {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, logName), whole[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		s, kept, _ := secrets(t, dir)
		want := "0"
		for i, end := range ends {
			if cut >= end {
				want = fmt.Sprint(i)
			}
		}
		if got := value(s, kept, "a"); got != want {
			t.Fatalf("cut at byte %d: value %q, want %q", cut, got, want)
		}
		if put(t, s, kept, "b", "x"); value(s, kept, "b") != "x" {
			t.Fatalf("cut at byte %d: cannot write", cut)
		}
		if err := s.close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestLogDamagedInTheMiddle(t *testing.T) {
	dir := t.TempDir()
	s, kept, _ := secrets(t, dir)
	put(t, s, kept, "a", "kept")
	put(t, s, kept, "b", "damaged")
	put(t, s, kept, "c", "after")
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, logName)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, bytes.Replace(whole, []byte(`"name":"b"`), []byte(`"name":"x"`), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	s, kept, logged := secrets(t, dir)
	if value(s, kept, "a") != "kept" || value(s, kept, "b") != "" || value(s, kept, "c") != "after" {
		t.Errorf("beside the damaged line %q and %q are read", value(s, kept, "a"), value(s, kept, "c"))
	}
	if says := strings.Join(s.lost, "\n"); !strings.HasPrefix(says, "secrets default/x: ") || strings.Contains(says, "\n") {
		t.Errorf("the loss is named as %q", says)
	}
	aside, err := filepath.Glob(path + ".unreadable-*")
	if err != nil || len(aside) != 1 || !strings.Contains(logged.String(), aside[0]) {
		t.Fatalf("unreadable bytes are in %v (%v); logged: %s", aside, err, logged)
	}
	if rest, err := os.ReadFile(aside[0]); err != nil || !bytes.Contains(rest, []byte(`"name":"x"`)) || bytes.Contains(rest, []byte(`"name":"c"`)) {
		t.Errorf("%s does not hold the damaged line alone: %v", aside[0], err)
	}
	before := put(t, s, kept, "d", "later")
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	s, kept, _ = secrets(t, dir)
	if value(s, kept, "c") != "after" || value(s, kept, "d") != "later" || len(s.lost) > 0 {
		t.Errorf("at the next start the loss is reported again: %q", s.lost)
	}
	if after := put(t, s, kept, "e", "x"); after <= before {
		t.Errorf("resource version %d after %d", after, before)
	}
}

// TestLogDamagedLineEnd: where the end of a line is damaged, two changes are lost in what seems to be one line, and both objects are named.
func TestLogDamagedLineEnd(t *testing.T) {
	dir := t.TempDir()
	s, kept, _ := secrets(t, dir)
	var ends []int64 // of the log, after each value
	path := filepath.Join(dir, logName)
	for _, name := range []string{"a", "b", "c", "d"} {
		put(t, s, kept, name, "kept")
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		ends = append(ends, info.Size())
	}
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	whole[ends[1]-1] = ' '
	if err := os.WriteFile(path, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	s, kept, logged := secrets(t, dir)
	if value(s, kept, "a") != "kept" || value(s, kept, "d") != "kept" {
		t.Errorf("beside the damaged line %q and %q are read", value(s, kept, "a"), value(s, kept, "d"))
	}
	if len(s.lost) != 2 || !strings.HasPrefix(s.lost[0], "secrets default/b: ") || !strings.HasPrefix(s.lost[1], "secrets default/c: ") {
		t.Errorf("the loss is named as %q", s.lost)
	}
	for _, lost := range s.lost {
		if !strings.Contains(logged.String(), lost) {
			t.Errorf("not logged: %s; logged: %s", lost, logged)
		}
	}
}

// TestLogObjectSetAside: an object that cannot be decoded is set aside alone, also over a compaction, and is back in a version that can read it.
func TestLogObjectSetAside(t *testing.T) {
	dir := t.TempDir()
	s, kept, _ := secrets(t, dir)
	put(t, s, kept, "a", "kept")
	put(t, s, kept, "b", "odd")
	put(t, s, kept, "c", "odd, too")
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	open := func(decode func([]byte) (runtime.Object, error)) (*store, *table) {
		t.Helper()
		codec := typedCodec(newOf(&corev1.Secret{}))
		if decode != nil {
			codec.decode = decode
		}
		kept := &table{name: "secrets", codec: codec}
		s, err := openStore(dir, []*table{kept}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.close() })
		return s, kept
	}
	whole := typedCodec(newOf(&corev1.Secret{})).decode
	s, kept = open(func(data []byte) (runtime.Object, error) {
		object, err := whole(data)
		if err == nil && strings.HasPrefix(string(object.(*corev1.Secret).Data["value"]), "odd") {
			err = errors.New("odd")
		}
		return object, err
	})
	if value(s, kept, "a") != "kept" || value(s, kept, "b") != "" {
		t.Errorf("%q and %q are read", value(s, kept, "a"), value(s, kept, "b"))
	}
	if len(s.lost) != 2 || !strings.HasPrefix(s.lost[0], "secrets default/b: ") || !strings.Contains(s.lost[0], "odd") {
		t.Errorf("they are named as %q", s.lost)
	}
	put(t, s, kept, "c", "new")
	s.rewrite()
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	s, kept = open(nil)
	if value(s, kept, "b") != "odd" || value(s, kept, "c") != "new" || len(s.lost) > 0 {
		t.Errorf("a version that reads it has %q and %q, and lost %q", value(s, kept, "b"), value(s, kept, "c"), s.lost)
	}
}

func TestLogOfANewerVersion(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, logName), []byte("{\"format\":2}\nwhatever"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Open(Config{Dir: dir, CRDs: crds.Files, Log: slog.New(slog.DiscardHandler)})
	if err == nil || !strings.Contains(err.Error(), "newer version of Substorm (format 2; this one reads up to 1)") {
		t.Errorf("error: %v", err)
	}
}

func TestLogIsCompacted(t *testing.T) {
	dir := t.TempDir()
	s, kept, _ := secrets(t, dir)
	put(t, s, kept, "other", "kept")
	big := strings.Repeat("x", 256<<10)
	var version uint64
	for i := range 60 { // 20 MiB of log
		version = put(t, s, kept, "big", fmt.Sprint(i, big))
	}
	info, err := os.Stat(filepath.Join(dir, logName))
	if err != nil || info.Size() > 2*compactAt {
		t.Fatalf("the log has %d bytes: %v", info.Size(), err)
	}
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	s, kept, _ = secrets(t, dir)
	if value(s, kept, "other") != "kept" || value(s, kept, "big") != fmt.Sprint(59, big) {
		t.Error("a compacted log lost something")
	}
	if next := put(t, s, kept, "new", "x"); next <= version {
		t.Errorf("resource version %d after a restart, %d before", next, version)
	}
}

// TestKilled kills the server while clients write, again and again: all that was
// acknowledged is there afterwards, and nothing that was acknowledged as deleted.
func TestKilled(t *testing.T) {
	dir := t.TempDir()
	acknowledged := map[string]string{} // by name; empty: deleted
	for round := range 10 {
		kill := serveProcess(t, dir)
		verify(t, dir, acknowledged)
		write(t, dir, round, acknowledged, kill)
	}
	serveProcess(t, dir)
	verify(t, dir, acknowledged)
	if len(acknowledged) < 100 {
		t.Errorf("only %d objects were written", len(acknowledged))
	}
}

// serveProcess serves a folder in a process of its own, and returns what kills that.
func serveProcess(t *testing.T, dir string) func() {
	t.Helper()
	c := exec.Command(os.Args[0])
	c.Env, c.Stderr = append(os.Environ(), serveDir+"="+dir), os.Stderr
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	kill := sync.OnceFunc(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	t.Cleanup(kill)
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("the server did not start: %v", err)
	}
	return kill
}

func clientOf(t *testing.T, dir string) *kubernetes.Clientset {
	t.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", filepath.Join(dir, kubeconfigName))
	if err != nil {
		t.Fatal(err)
	}
	cfg.QPS = -1
	return kubernetes.NewForConfigOrDie(cfg)
}

// write has clients create, change and delete Secrets until the server is killed.
func write(t *testing.T, dir string, round int, acknowledged map[string]string, kill func()) {
	t.Helper()
	api := clientOf(t, dir).CoreV1().Secrets("default")
	var mu sync.Mutex
	var clients sync.WaitGroup
	count := 0
	for client := range 4 {
		clients.Go(func() {
			for i := 0; ; i++ {
				name := fmt.Sprintf("s-%d-%d-%d", round, client, i)
				note := func(value string, err error) bool {
					mu.Lock()
					defer mu.Unlock()
					if err != nil {
						delete(acknowledged, name) // it may have been written
						return false
					}
					acknowledged[name] = value
					if count++; count == 60 {
						go kill()
					}
					return true
				}
				_, err := api.Create(context.Background(), secret(name, "first"), metav1.CreateOptions{})
				if !note("first", err) {
					return
				}
				_, err = api.Update(context.Background(), secret(name, "second"), metav1.UpdateOptions{})
				if !note("second", err) {
					return
				}
				if i%3 == 0 && !note("", api.Delete(context.Background(), name, metav1.DeleteOptions{})) {
					return
				}
			}
		})
	}
	clients.Wait()
	kill()
}

func verify(t *testing.T, dir string, acknowledged map[string]string) {
	t.Helper()
	api := clientOf(t, dir).CoreV1().Secrets("default")
	for name, want := range acknowledged {
		s, err := api.Get(context.Background(), name, metav1.GetOptions{})
		switch {
		case want == "" && !apierrors.IsNotFound(err):
			t.Errorf("%s was deleted: %v", name, err)
		case want != "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case want != "" && string(s.Data["value"]) != want:
			t.Errorf("%s is %q, acknowledged was %q", name, s.Data["value"], want)
		}
	}
}
