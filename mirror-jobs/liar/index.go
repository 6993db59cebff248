// SPDX-License-Identifier: Apache-2.0

package liar

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/substorm/substorm/internal/mirrorindex"
)

// The ways in which a feed server lies about its archive, beside Portal, BarePortal, Redirect, Cut and OtherBytes. They are about the object at
// Index.New, but OtherObject and ShrinkingDay, which are about that at Index.Held.
const (
	// PageForObjects answers questions for objects with Page.
	PageForObjects Mode = "page for objects"
	// EndsEarly leaves out the second half of each list, and its end.
	EndsEarly Mode = "ends early"
	// NoEnd leaves out the end of each list alone.
	NoEnd Mode = "no end"
	// WrongDigest lists an object with another digest.
	WrongDigest Mode = "wrong digest"
	// OtherObject gives an ID that it gave to an object before to other bytes.
	OtherObject Mode = "other object"
	// ShrinkingDay lists a day without an object.
	ShrinkingDay Mode = "shrinking day"
	// EmptyDay lists a day without objects.
	EmptyDay Mode = "empty day"
	// NoDays lists instruments without days.
	NoDays Mode = "no days"
	// NoInstruments has none.
	NoInstruments Mode = "no instruments"
	// Absent says that there is no such instrument.
	Absent Mode = "absent"
	// OtherSite is another Site.
	OtherSite Mode = "other site"
	// OtherSiteIDs lists objects with IDs of another Site.
	OtherSiteIDs Mode = "other site's IDs"
	// DuplicateID lists another object with the same ID.
	DuplicateID Mode = "duplicate ID"
	// DuplicatePath lists another object with the same path.
	DuplicatePath Mode = "duplicate path"
	// Gigantic lists an object with more bytes than one may have, Huge with more than a disk has, and Negative with fewer than none.
	Gigantic Mode = "gigantic"
	Huge     Mode = "huge"
	Negative Mode = "negative"
	// Outside, Absolute and Dotted list an object with a path that no file may have.
	Outside  Mode = "path outside"
	Absolute Mode = "absolute path"
	Dotted   Mode = "own path"
	// AllPurged lists all objects as purged by a person.
	AllPurged Mode = "all purged"
	// YearAhead, YearBehind and NoTime are clocks, and OldCopy answers as it did half a day ago.
	YearAhead  Mode = "year ahead"
	YearBehind Mode = "year behind"
	NoTime     Mode = "no time"
	OldCopy    Mode = "old copy"
)

// IndexModes are those of an Index.
var IndexModes = []Mode{
	Portal, BarePortal, Redirect, Cut, OtherBytes, PageForObjects, EndsEarly, NoEnd, WrongDigest, OtherObject, ShrinkingDay, EmptyDay, NoDays, NoInstruments, Absent,
	OtherSite, OtherSiteIDs, DuplicateID, DuplicatePath, Gigantic, Huge, Negative, Outside, Absolute, Dotted, AllPurged, YearAhead, YearBehind, NoTime, OldCopy,
}

// Index stands before a feed server. While it lies, it says that all has changed.
type Index struct {
	// URL of it.
	URL string
	// Held is the path of an object that was pulled before the server began to lie, and New the path of one that was not.
	Held, New string
	mode      atomic.Pointer[Mode]
	// clock is by how much the Date of what is answered honestly is off.
	clock  atomic.Int64
	honest http.Handler
}

// Set has it lie in another way from now on.
func (x *Index) Set(m Mode) { x.mode.Store(&m) }

// SetClock has the Date of its answers be off by so much from now on.
func (x *Index) SetClock(off time.Duration) { x.clock.Store(int64(off)) }

// BeforeIndex returns one before the feed server at a URL.
func BeforeIndex(t testing.TB, server string) *Index {
	t.Helper()
	at, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	x := &Index{}
	x.honest = &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(at) }, ModifyResponse: func(answer *http.Response) error {
		if off := time.Duration(x.clock.Load()); off != 0 {
			answer.Header.Set("Date", time.Now().Add(off).UTC().Format(http.TimeFormat))
		}
		return nil
	}}
	x.Set("")
	s := httptest.NewServer(x)
	t.Cleanup(s.Close)
	x.URL = s.URL
	return x
}

// ServeHTTP implements http.Handler.
func (x *Index) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	mode, objects := *x.mode.Load(), !strings.HasPrefix(r.URL.Path, mirrorindex.RootPath) || r.URL.Path == mirrorindex.ObjectsPath
	switch {
	case mode == "" || r.URL.Path == mirrorindex.ConfirmedPath && mode != Portal && mode != BarePortal && mode != Redirect:
		x.honest.ServeHTTP(w, r)
	case mode == Portal, mode == BarePortal, mode == Redirect:
		(&Proxy{}).serve(mode, x.honest, w, r)
	case objects && mode == PageForObjects:
		(&Proxy{}).serve(Portal, x.honest, w, r)
	case mode == Cut, objects && mode == OtherBytes:
		r.Header.Del("If-None-Match")
		r.Header.Set("Accept-Encoding", "identity")
		change(mode, x.honest, w, r)
	case objects:
		x.honest.ServeHTTP(w, r)
	default:
		x.lie(mode, w, r)
	}
}

// lie answers a question about the index.
func (x *Index) lie(mode Mode, w http.ResponseWriter, r *http.Request) {
	r.Header.Del("If-None-Match")
	r.Header.Set("Accept-Encoding", "identity")
	question, _ := io.ReadAll(r.Body)
	if r.URL.Path == mirrorindex.ListsPath { // a part of a list has nothing to lie about
		question = lines(question, func(q map[string]any) []map[string]any { delete(q, "have"); return []map[string]any{q} })
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(question)), int64(len(question))
	got := httptest.NewRecorder()
	x.honest.ServeHTTP(got, r)
	body := lines(got.Body.Bytes(), func(line map[string]any) []map[string]any {
		if tag, is := line["tag"].(string); is {
			line["tag"] = tag + string(mode)
		}
		if r.URL.Path == mirrorindex.RootPath {
			return []map[string]any{lieOfRoot(mode, line)}
		}
		return x.lieOfLine(mode, r.URL.Path, line)
	})
	if all := bytes.SplitAfter(body, []byte("\n")); r.URL.Path != mirrorindex.RootPath && mode == EndsEarly {
		body = bytes.Join(all[:len(all)/2], nil)
	}
	w.Header().Set("Content-Type", got.Header().Get("Content-Type"))
	w.WriteHeader(got.Code)
	_, _ = w.Write(body)
}

// lines changes JSON objects that follow each other.
func lines(text []byte, change func(map[string]any) []map[string]any) []byte {
	var out bytes.Buffer
	in := json.NewDecoder(bytes.NewReader(text))
	in.UseNumber()
	for {
		line := map[string]any{}
		if err := in.Decode(&line); err != nil {
			return out.Bytes()
		}
		for _, l := range change(line) {
			_ = json.NewEncoder(&out).Encode(l) // it came as JSON
		}
	}
}

func lieOfRoot(mode Mode, root map[string]any) map[string]any {
	instruments, _ := root["instruments"].([]any)
	for _, in := range instruments {
		line := in.(map[string]any)
		line["tag"] = fmt.Sprint(line["tag"], mode)
	}
	now := time.Now().UTC()
	switch mode {
	case NoInstruments:
		root["instruments"] = []any{}
	case OtherSite:
		root["site"] = "elsewhere"
	case YearAhead:
		root["now"] = now.AddDate(1, 0, 0)
	case YearBehind:
		root["now"] = now.AddDate(-1, 0, 0)
	case NoTime:
		delete(root, "now")
	case OldCopy:
		root["now"] = now.Add(-12 * time.Hour)
	}
	return root
}

// lieOfLine returns the lines of an answer in place of one.
func (x *Index) lieOfLine(mode Mode, path string, line map[string]any) []map[string]any {
	_, entry := line["path"]
	about := line["path"] == x.New
	if mode == OtherObject || mode == ShrinkingDay {
		about = line["path"] == x.Held
	}
	switch {
	case mode == NoEnd && line["end"] == true,
		mode == NoDays && path == mirrorindex.DaysPath && line["instrument"] == nil && line["end"] == nil,
		mode == ShrinkingDay && about, mode == EmptyDay && entry:
		return nil
	case mode == Absent && line["instrument"] != nil:
		line["gone"], line["absent"] = true, true
	case mode == AllPurged && entry:
		line["state"], line["reason"], line["cause"] = "Purged", "a lie", "Request"
	case mode == OtherSiteIDs && entry:
		line["id"] = strings.Replace(line["id"].(string), "o/", "o/elsewhere/", 1)
	case (mode == DuplicateID || mode == DuplicatePath) && about:
		other := map[string]any{}
		maps.Copy(other, line)
		other["sha256"] = strings.Repeat("2", 64)
		if mode == DuplicateID {
			other["path"] = "again/" + x.New
		} else {
			other["id"] = line["id"].(string) + "-again"
		}
		return []map[string]any{line, other}
	case about:
		lieOfEntry(mode, line)
	}
	return []map[string]any{line}
}

func lieOfEntry(mode Mode, entry map[string]any) {
	switch mode {
	case WrongDigest, OtherObject:
		entry["sha256"] = strings.Repeat("1", 64)
	case Gigantic:
		entry["size"] = json.Number("6000000000000000")
	case Huge:
		entry["size"] = json.Number("4000000000000")
	case Negative:
		entry["size"] = -1
	case Outside:
		entry["path"] = "../../../outside.txt"
	case Absolute:
		entry["path"] = "/tmp/outside.txt"
	case Dotted:
		entry["path"] = ".substorm/state.json"
	}
}
