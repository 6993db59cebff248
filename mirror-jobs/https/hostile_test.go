// SPDX-License-Identifier: Apache-2.0

package https_test

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/substorm/substorm/internal/mirrorindex"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/bound"
	"github.com/substorm/substorm/mirror-jobs/https"
)

// hostile is a client of a server that answers as it likes, compressed.
func hostile(t *testing.T, answer func(w io.Writer)) *https.Client {
	t.Helper()
	return hostileKept(t, https.Kept{}, answer)
}

// hostileKept is as hostile, with bounds of what the client keeps.
func hostileKept(t *testing.T, kept https.Kept, answer func(w io.Writer)) *https.Client {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "zstd")
		z, err := zstd.NewWriter(w)
		if err != nil {
			t.Error(err)
			return
		}
		answer(z)
		_ = z.Close()
	}))
	t.Cleanup(server.Close)
	at, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	client := https.New(https.Config{URL: at, Connections: 2, Kept: kept})
	t.Cleanup(client.Close)
	return client
}

// An endless index is refused, whatever it has.
func TestHostileIndex(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ line, says string }{
		"lines of nothing": {"{}\n", "day"},
		"days":             {`{"day":"2026-01-01","tag":"x"}` + "\n", "the limit of 4000 months and days of instrument camera"},
		"long tags":        {`{"day":"2026-01-01","tag":"` + strings.Repeat("x", 100<<10) + `"}` + "\n", "the limit of 64 MiB"},
		"a folder":         {`{"day":"../../camera/evil","tag":"x"}` + "\n", "day"},
		"a month":          {`{"month":"2026-13","tag":"x"}` + "\n", "month"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := hostile(t, func(w io.Writer) {
				_, err := io.WriteString(w, `{"instrument":"camera","tag":"x"}`+"\n")
				for text := strings.Repeat(c.line, 1000); err == nil; {
					_, err = io.WriteString(w, text)
				}
			})
			_, err := client.Days(t.Context(), []mirrorindex.DaysQuestion{{Instrument: "camera"}})
			if err == nil || !strings.Contains(err.Error(), c.says) || strings.HasPrefix(c.says, "the limit") != bound.Is(err) {
				t.Errorf("%v", err)
			}
		})
	}
}

// A root with more instruments than a Site may have is refused before they take memory.
func TestHostileRootInMemory(t *testing.T) {
	client := hostile(t, func(w io.Writer) {
		_, _ = fmt.Fprintf(w, `{"format":%d,"site":"hub","now":"2026-01-01T00:00:00Z","bundles":1,"instruments":[{}`, mirrorindex.Format)
		for range 4000 { // 12 MB, less than the limit of bytes
			_, _ = io.WriteString(w, strings.Repeat(",{}", 1000))
		}
		_, _ = io.WriteString(w, "]}")
	})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, _, _, err := client.Root(t.Context(), "")
	runtime.ReadMemStats(&after)
	if !bound.Is(err) || !strings.Contains(err.Error(), "the limit of 100000 instruments") {
		t.Errorf("%v", err)
	}
	if took := (after.TotalAlloc - before.TotalAlloc) >> 20; took > 300 {
		t.Errorf("%d MiB were allocated for it", took)
	}
}

// A list that is decompressed to far more than came is refused.
func TestHostileList(t *testing.T) {
	t.Parallel()
	client := hostile(t, func(w io.Writer) {
		_, err := io.WriteString(w, `{"instrument":"camera","day":"2026-01-01"}`+"\n")
		for text := strings.Repeat(fmt.Sprintf(`{"path":"`+strings.Repeat("a", 900)+`","size":1,"sha256":"%064d","id":"a","receivedAt":"2026-01-01T00:00:00Z"}`+"\n", 1), 1000); err == nil; {
			_, err = io.WriteString(w, text)
		}
	})
	_, err := client.Lists(t.Context(), []mirrorindex.ListQuestion{{Instrument: "camera", Day: "2026-01-01"}})
	if err == nil || !strings.Contains(err.Error(), "more than 64 times") || https.ReasonOf(err) != wire.MirrorReasonProtocol {
		t.Errorf("%v", err)
	}
}

// An object that is listed with a time at which none is received costs that object, and not the list.
func TestUntakenTime(t *testing.T) {
	t.Parallel()
	client := hostile(t, func(w io.Writer) {
		_ = entriesOf(w, "1969-12-31", 2)
		_, _ = fmt.Fprintf(w, `{"path":"early","size":1,"sha256":"%064d","id":"early","receivedAt":"1969-12-31T23:00:00Z"}`+"\n"+`{"end":true}`+"\n", 1)
	})
	all, err := client.Lists(t.Context(), []mirrorindex.ListQuestion{{Instrument: "camera", Day: "1969-12-31"}})
	if err != nil {
		t.Fatal(err)
	}
	if len(all[0].Entries) != 2 || len(all[0].Untaken) != 1 || all[0].Untaken[0].Path != "early" || !errors.Is(all[0].Untaken[0].Err, mirrorindex.ErrTime) {
		t.Errorf("%+v", all)
	}
}

// entriesOf writes the list of a day.
func entriesOf(w io.Writer, day string, n int) error {
	_, err := fmt.Fprintf(w, `{"instrument":"camera","day":%q,"tag":"t"}`+"\n", day)
	for i := 0; i < n && err == nil; i++ {
		_, err = fmt.Fprintf(w, `{"path":"%06d","size":1,"sha256":"%064d","id":"%06d","receivedAt":"2026-01-01T00:00:00Z"}`+"\n", i, 1, i)
	}
	return err
}

// The memory of lists is bounded: a day that exceeds it is refused, and of several days the first ones come. The number of objects
// that are read grows only with the limit.
func TestListsKept(t *testing.T) {
	t.Parallel()
	read := map[int]int{}
	for _, most := range []int{1 << 20, 2 << 20} {
		days := hostileKept(t, https.Kept{Lists: int64(most)}, func(w io.Writer) {
			for _, day := range []string{"2026-01-01", "2026-01-02", "2026-01-03"} {
				if entriesOf(w, day, most/500) != nil {
					return
				}
			}
			_, _ = io.WriteString(w, `{"end":true}`+"\n")
		})
		questions := []mirrorindex.ListQuestion{{Instrument: "camera", Day: "2026-01-01"}, {Instrument: "camera", Day: "2026-01-02"}, {Instrument: "camera", Day: "2026-01-03"}}
		lists, err := days.Lists(t.Context(), questions)
		if err != nil || len(lists) == 0 || len(lists) == 3 || len(lists[0].Entries) != most/500 {
			t.Fatalf("%d lists, %v", len(lists), err)
		}
		for _, l := range lists {
			read[most] += len(l.Entries)
		}
		if _, err := hostileKept(t, https.Kept{Lists: int64(most) / 4}, func(w io.Writer) { _ = entriesOf(w, "2026-01-01", most/500) }).Lists(t.Context(), questions[:1]); !bound.Is(err) {
			t.Errorf("%v", err)
		}
	}
	if read[2<<20] != 2*read[1<<20] {
		t.Errorf("objects that are kept: %v", read)
	}
}

// A root that is too long, or has too many instruments, is refused.
func TestHostileRoot(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ begin, repeat, end, says string }{
		"endless":     {`{"format":1,"site":"hub","instruments":[`, `{"instrument":"camera","tag":"` + strings.Repeat("x", 1000) + `"},`, "", "the limit of 16 MiB"},
		"instruments": {`{"format":1,"site":"hub","instruments":[{"instrument":"x"}`, `,{"instrument":"camera","tag":"x"}`, "]}", "the limit of 100000 instruments"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := hostile(t, func(w io.Writer) {
				_, err := io.WriteString(w, c.begin)
				for i := 0; err == nil && (c.end == "" || i < 100); i++ {
					_, err = io.WriteString(w, strings.Repeat(c.repeat, 1000))
				}
				_, _ = io.WriteString(w, c.end)
			})
			_, _, _, err := client.Root(t.Context(), "")
			if !slices.Equal(bound.Of(err), []string{bound.Root}) || !strings.Contains(err.Error(), c.says) || https.ReasonOf(err) != wire.MirrorReasonProtocol {
				t.Errorf("%v", err)
			}
		})
	}
}

// A bundle that never ends is.
func TestHostileBundle(t *testing.T) {
	t.Parallel()
	client := hostile(t, func(w io.Writer) {
		out, data := tar.NewWriter(w), make([]byte, 1<<20)
		for {
			if out.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "hub/camera/x", Size: int64(len(data))}) != nil {
				return
			}
			if _, err := out.Write(data); err != nil {
				return
			}
		}
	})
	err := client.Objects(t.Context(), "hub", nil, 1000, func(_, _, _ string, _ int64, body io.Reader) error {
		_, err := io.Copy(io.Discard, body)
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "was asked for objects of 1000 bytes") {
		t.Errorf("%v", err)
	}
}

// A "not modified" is no answer to an unconditional request, and an endless wait is none.
func TestUnasked(t *testing.T) {
	t.Parallel()
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked++
		w.WriteHeader(http.StatusNotModified)
	}))
	defer server.Close()
	at, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	client := https.New(https.Config{URL: at, Connections: 1})
	defer client.Close()
	if _, _, unchanged, err := client.Root(t.Context(), ""); err == nil || unchanged || asked != 1 {
		t.Errorf("unchanged: %t, %v, after %d requests", unchanged, err, asked)
	}
	if _, _, unchanged, err := client.Root(t.Context(), `"x"`); err != nil || !unchanged {
		t.Errorf("unchanged: %t, %v", unchanged, err)
	}
	if err := client.Get(t.Context(), "/a.txt", nil, func(*http.Response) error { return nil }); err == nil {
		t.Error("a file that is not here is taken for unchanged")
	}
	if err := client.Get(t.Context(), "/a.txt", map[string]string{"If-Modified-Since": time.Now().UTC().Format(http.TimeFormat)}, func(*http.Response) error { return nil }); err != nil {
		t.Error(err)
	}
}
