// SPDX-License-Identifier: Apache-2.0

// Package readable makes clients that list and watch objects of our kinds also where one of
// them cannot be decoded: the operator's, and those of commands that say how all is.
package readable

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/rest"

	"github.com/substorm/substorm/operator/api/v1alpha1"
)

// Config returns a copy of cfg whose clients can decode every object of our kinds. A
// typed client fails a whole list, and a whole watch, for one object that it cannot
// decode, as an object that was stored under another version of the CRDs may be. Here such
// an object loses the fields that cannot be decoded, and bears
// v1alpha1.AnnotationUnreadable, which says why: the planners leave all that was made for
// it as it stands. The log hears of each. Such an object is not to be written back as a whole.
func Config(cfg *rest.Config, scheme *runtime.Scheme, log *slog.Logger) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return &transport{next: next, mend: mender{scheme: scheme, log: log}}
	})
	return cfg
}

type transport struct {
	next http.RoundTripper
	mend mender
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(req)
	ours := strings.Contains(req.URL.Path, "/apis/"+v1alpha1.GroupVersion.String()+"/")
	if err != nil || !ours || req.Method != http.MethodGet || resp.StatusCode != http.StatusOK ||
		!strings.HasPrefix(resp.Header.Get("Content-Type"), runtime.ContentTypeJSON) {
		return resp, err
	}
	if watch, _ := strconv.ParseBool(req.URL.Query().Get("watch")); watch {
		resp.Body = &watchBody{events: json.NewDecoder(resp.Body), body: resp.Body, mend: t.mend}
		return resp, nil
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", req.URL.Path, err)
	}
	body = t.mend.answer(body)
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	resp.Header.Del("Content-Length")
	return resp, nil
}

// watchBody is the body of a watch: one JSON object after the other.
type watchBody struct {
	events *json.Decoder
	body   io.Closer
	mend   mender
	rest   []byte
}

// Read implements io.Reader.
func (w *watchBody) Read(p []byte) (int, error) {
	if len(w.rest) == 0 {
		var event json.RawMessage
		if err := w.events.Decode(&event); err != nil {
			return 0, err
		}
		w.rest = append(w.mend.event(event), '\n')
	}
	n := copy(p, w.rest)
	w.rest = w.rest[n:]
	return n, nil
}

// Close implements io.Closer.
func (w *watchBody) Close() error { return w.body.Close() }

// mender takes out of objects what cannot be decoded. What is no JSON object of ours stays
// as it came.
type mender struct {
	scheme *runtime.Scheme
	log    *slog.Logger
}

// answer mends a list, or one object.
func (m mender) answer(body []byte) []byte {
	var list struct {
		Items []json.RawMessage `json:"items"`
	}
	if json.Unmarshal(body, &list) != nil || list.Items == nil {
		return m.object(body)
	}
	changed := false
	for i, item := range list.Items {
		mended := m.object(item)
		changed = changed || !bytes.Equal(mended, item)
		list.Items[i] = mended
	}
	if !changed {
		return body
	}
	return replaced(body, "items", list.Items)
}

// event mends the object of a watch's event.
func (m mender) event(event []byte) []byte {
	if before, object, after, ok := cutEvent(event); ok {
		return slices.Concat(before, m.object(withoutManagedFields(object)), after)
	}
	var e struct {
		Object json.RawMessage `json:"object"`
	}
	if json.Unmarshal(event, &e) != nil || e.Object == nil {
		return event
	}
	return replaced(event, "object", json.RawMessage(m.object(e.Object)))
}

// replaced sets one member of a JSON object.
func replaced(in []byte, member string, value any) []byte {
	var all map[string]json.RawMessage
	if json.Unmarshal(in, &all) != nil {
		return in
	}
	data, err := json.Marshal(value)
	if err != nil {
		return in
	}
	all[member] = data
	out, err := json.Marshal(all)
	if err != nil {
		return in
	}
	return out
}

// object mends one object.
func (m mender) object(data []byte) []byte {
	u := &unstructured.Unstructured{}
	problem := m.decode(data)
	if problem == nil && !bytes.Contains(data, []byte(v1alpha1.AnnotationUnreadable)) {
		return data
	}
	if utiljson.Unmarshal(data, &u.Object) != nil {
		return data
	}
	annotations := u.GetAnnotations()
	if problem == nil {
		delete(annotations, v1alpha1.AnnotationUnreadable) // nobody else says so
	} else {
		why := cmp.Or(strings.Join(m.strip(u), "; "), problem.Error())
		m.log.Warn("an object cannot be read; what was made for it stays as it is, and its changes wait: correct it, or run a version of the operator that reads it",
			"kind", u.GetKind(), "namespace", u.GetNamespace(), "name", u.GetName(), "error", why)
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[v1alpha1.AnnotationUnreadable] = why
	}
	u.SetAnnotations(annotations)
	mended, err := json.Marshal(u.Object)
	if err != nil {
		return data
	}
	return mended
}

// decode says why an object of our kinds cannot be decoded.
func (m mender) decode(data []byte) error {
	kind, ours := kindOf(data)
	if !ours {
		return nil
	}
	object, err := m.scheme.New(v1alpha1.GroupVersion.WithKind(kind))
	if err != nil {
		return nil
	}
	if err := utiljson.Unmarshal(data, object); err != nil {
		return err
	}
	return wholeListeners(object)
}

// wholeListeners says where a listener lacks what each has. The name is the key of their list: without one, the API server takes
// no server-side apply of the Instrument, not of its status either.
func wholeListeners(o runtime.Object) error {
	inst, ok := o.(*v1alpha1.Instrument)
	if !ok {
		return nil
	}
	for i, l := range inst.Spec.Listeners {
		if l.Name == "" || l.Protocol == "" {
			return fmt.Errorf("listeners[%d] has no name or no protocol: it was stored by another version of Substorm, replace the Instrument by one as this version has it", i)
		}
	}
	return nil
}

// strip removes a status that cannot be decoded, and each such field of the spec, and says of
// each why it cannot: what Go says of a value need not name its field. An Instrument whose
// access cannot be decoded is closed.
func (m mender) strip(u *unstructured.Unstructured) (why []string) {
	readable := func(field, member string, value any) bool {
		data, err := json.Marshal(map[string]any{"apiVersion": u.GetAPIVersion(), "kind": u.GetKind(), member: value})
		if err == nil {
			err = m.decode(data)
		}
		if err != nil {
			why = append(why, fmt.Sprintf("%s: %v", field, err))
		}
		return err == nil
	}
	spec, ok := u.Object["spec"].(map[string]any)
	if !ok {
		delete(u.Object, "spec")
	}
	for _, name := range slices.Sorted(maps.Keys(spec)) {
		if readable("spec."+name, "spec", map[string]any{name: spec[name]}) {
			continue
		}
		delete(spec, name)
		if name == "access" {
			spec[name] = map[string]any{"live": string(v1alpha1.AccessRestricted), "archive": string(v1alpha1.AccessRestricted)}
		}
	}
	if !readable("status", "status", u.Object["status"]) {
		delete(u.Object, "status")
	}
	return why
}
