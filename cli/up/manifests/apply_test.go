// SPDX-License-Identifier: Apache-2.0

package manifests_test

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/substorm/substorm/cli/up/kubeapi"
	"github.com/substorm/substorm/cli/up/manifests"
	"github.com/substorm/substorm/crds"
	"github.com/substorm/substorm/operator"
)

// api is a Kubernetes API of `substorm up`.
func api(t *testing.T) client.Client {
	t.Helper()
	s, err := kubeapi.Open(kubeapi.Config{Dir: t.TempDir(), Listen: "127.0.0.1:0", CRDs: crds.Files, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	scheme, err := operator.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(s.RESTConfig(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

const readers = "apiVersion: v1\nkind: Secret\nmetadata: {name: readers}\n"

// TestSecretKeys: a key that is taken out of a Secret's file is gone, whether the file had it under stringData or data, and also if an
// earlier version applied stringData as it is. Keys that another manager set stay.
func TestSecretKeys(t *testing.T) {
	c, dir := api(t), t.TempDir()
	apply := func(text string) {
		t.Helper()
		write(t, dir, "readers.yaml", readers+text)
		objects, err := manifests.Up.Load([]string{dir}, "default")
		if err == nil {
			_, err = manifests.Apply(t.Context(), c, objects, slog.New(slog.DiscardHandler))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	holds := func(when, want string) {
		t.Helper()
		var secret corev1.Secret
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "readers"}, &secret); err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, key := range slices.Sorted(maps.Keys(secret.Data)) {
			all = append(all, key+"="+string(secret.Data[key]))
		}
		if got := strings.Join(all, " "); got != want {
			t.Errorf("%s the Secret holds %q, want %q", when, got, want)
		}
	}
	// As a version before this one applied it.
	for _, data := range []map[string]any{{"uni": "1", "ops": "2", "old": "3"}, {"uni": "1", "ops": "2"}} {
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret", "stringData": data,
			"metadata": map[string]any{"name": "readers", "namespace": "default", "labels": map[string]any{"substorm.dev/from-file": "true"}}}}
		if err := c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(o), client.FieldOwner("substorm-up"), client.ForceOwnership); err != nil {
			t.Fatal(err)
		}
	}
	holds("before", "old=3 ops=2 uni=1")
	if err := c.Patch(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "readers"}}, client.RawPatch("application/merge-patch+json", []byte(`{"data":{"theirs":"NA=="}}`)),
		client.FieldOwner("kubectl-patch")); err != nil {
		t.Fatal(err)
	}

	apply("stringData: {uni: '1', ops: '2'}\n")
	holds("once it is healed", "ops=2 theirs=4 uni=1")
	apply("stringData: {uni: '1'}\n")
	holds("without a key of stringData", "theirs=4 uni=1")
	apply("stringData: {uni: '5'}\ndata: {uni: MQ==, lab: Ng==}\n")
	holds("with both", "lab=6 theirs=4 uni=5")
	apply("data: {lab: Ng==}\n")
	holds("without stringData", "lab=6 theirs=4")
}

// TestRefused: what the API server refuses is said with the line of the field, and what to write there.
func TestRefused(t *testing.T) {
	const head = "# The camera.\napiVersion: substorm.dev/v1alpha1\nkind: Instrument\nmetadata: {name: camera}\nspec:\n  siteRef: {name: hub}\n  type: AllSkyCamera\n" +
		"  listeners:\n  - {name: frames, protocol: TCP, port: 30101}\n"
	c := api(t)
	for name, test := range map[string]struct{ text, want string }{
		"a number": {head + "  cadence:\n    interval: 20\n",
			`m.yaml:11: failed to create typed patch object (default/camera; substorm.dev/v1alpha1, Kind=Instrument): .spec.cadence.interval: expected text, got 20: put it in quotes, and a duration or a size has a unit, such as "20s"`},
		"an unknown field": {head + "  cadance: {interval: 20s}\n",
			`m.yaml:10: failed to create typed patch object (default/camera; substorm.dev/v1alpha1, Kind=Instrument): .spec.cadance: field not declared in schema`},
		"a latitude": {head + "  location:\n    latitude: \"156.38\"\n    longitude: \"0\"\n",
			`m.yaml:11: Instrument "camera": spec.location.latitude: Invalid value: "156.38": a latitude is a number of degrees from -90 to 90, such as 69.66, with at most 8 decimals`},
		"a template": {head + "  naming: {template: \"{year}/{doy}/{staton}-{digest}\"}\n",
			`m.yaml:10: Instrument "camera": spec.naming.template: Invalid value: "{year}/{doy}/{staton}-{digest}": between braces a template has one of year, year2, month, day, doy, hour, minute, second, millisecond, station, instrument, name, id, sequence, digest, and digest:8 to digest:64; elsewhere any text without braces, backslashes and control characters`},
		"a backslash": {head + "  naming: {template: '{year}/{doy}/a\\b-{digest}'}\n",
			`m.yaml:10: Instrument "camera": spec.naming.template: Invalid value: "{year}/{doy}/a\\b-{digest}": between braces a template has one of year, year2, month, day, doy, hour, minute, second, millisecond, station, instrument, name, id, sequence, digest, and digest:8 to digest:64; elsewhere any text without braces, backslashes and control characters`},
		"nothing": {head + "  station: gillam\n  location: {latitude: \"-90.0\", longitude: \"180\"}\n  archive: {mediaType: application/x-a.b+c}\n  naming: {template: \"{year}/{doy}/Å_{station}-{digest:16}.pgm.gz\"}\n", ""},
		"two fields": {head + "  archive:\n    mediaType: png\n  location: {latitude: \"0\", longitude: \"180.5\"}\n",
			`m.yaml:11: Instrument "camera": spec.archive.mediaType: Invalid value: "png": a media type has two parts, such as image/png, and no parameters` + "\n" +
				`m.yaml:12: Instrument "camera": spec.location.longitude: Invalid value: "180.5": a longitude is a number of degrees from -180 to 180, such as -94.64, with at most 8 decimals`},
		"a port of a list": {strings.Replace(head, "30101}", "99999}", 1),
			`m.yaml:9: Instrument "camera": spec.listeners[0].port: Invalid value: 99999: spec.listeners[0].port in body should be less than or equal to 65535`},
		"a field that is missing": {"apiVersion: substorm.dev/v1alpha1\nkind: FeedConsumer\nmetadata: {name: me}\nspec:\n  feedRef: {name: all}\n",
			`m.yaml:4: FeedConsumer "me": spec.delivery: Required value: it has the field type, which is NATS, ServerSentEvents or WebSocket`},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, "m.yaml", test.text)
			objects, err := manifests.Up.Load([]string{dir}, "default")
			if err != nil {
				t.Fatal(err)
			}
			_, err = manifests.Apply(t.Context(), c, objects, slog.New(slog.DiscardHandler))
			got := strings.ReplaceAll(strings.Join(manifests.Problems(err), "\n"), dir+"/", "")
			if got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}
