// SPDX-License-Identifier: Apache-2.0

package quickstart

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

var config = Config{Namespace: "aurora", Prefix: "substorm", ClusterDomain: "cluster.local", Instance: "quickstart"}

var allSecrets = []string{
	"substorm-nats-operator", "substorm-nats-auth", "substorm-nats-account", "substorm-nats-consumers", "substorm-nats-commands", "substorm-nats-leaves",
	"substorm-s3", "substorm-s3-read", "substorm-s3-gateway",
	"substorm-tls-ca", "substorm-tls-nats", "substorm-tls-s3", "substorm-tls-client",
}

func makeKeys(t *testing.T, v Vault) error {
	t.Helper()
	return keysWith(t, v, config)
}

func keysWith(t *testing.T, v Vault, c Config) error {
	t.Helper()
	return Keys(t.Context(), slog.New(slog.NewTextHandler(t.Output(), nil)), v, c)
}

func complete(t *testing.T) *Memory {
	t.Helper()
	var v Memory
	if err := makeKeys(t, &v); err != nil {
		t.Fatal(err)
	}
	return &v
}

func (m *Memory) names() []string {
	var names []string
	for _, s := range m.Made {
		names = append(names, s.Name)
	}
	return names
}

func (m *Memory) remove(name string) {
	m.Made = slices.DeleteFunc(m.Made, func(s *corev1.Secret) bool { return s.Name == name })
}

func (m *Memory) data(t *testing.T, name string) map[string][]byte {
	t.Helper()
	data, found, _ := m.Get(t.Context(), name)
	if !found {
		t.Fatalf("no secret %s", name)
	}
	return data
}

func TestKeysMakesAllOnceAndKeepsThem(t *testing.T) {
	v := complete(t)
	if diff := cmp.Diff(allSecrets, v.names()); diff != "" {
		t.Fatalf("secrets (-want +got):\n%s", diff)
	}
	before := map[string]map[string][]byte{}
	for _, s := range v.Made {
		before[s.Name] = maps.Clone(s.Data)
	}
	if err := makeKeys(t, v); err != nil {
		t.Fatal(err)
	}
	for _, s := range v.Made {
		if diff := cmp.Diff(before[s.Name], s.Data); diff != "" {
			t.Errorf("%s changed in the second run", s.Name)
		}
	}
}

func TestKeysCompletesAnInterruptedRun(t *testing.T) {
	for n := range allSecrets {
		v := complete(t)
		v.Made = v.Made[:n]
		if err := makeKeys(t, v); err != nil {
			t.Fatalf("after %d secrets: %v", n, err)
		}
		if diff := cmp.Diff(allSecrets, v.names()); diff != "" {
			t.Errorf("after %d secrets (-want +got):\n%s", n, diff)
		}
		for _, account := range []string{"substorm-nats-account", "substorm-nats-consumers", "substorm-nats-commands", "substorm-nats-leaves"} {
			id := string(v.data(t, account)[keyAccountID])
			if conf := string(v.data(t, "substorm-nats-auth")[keyAuthConf]); !strings.Contains(conf, id) {
				t.Errorf("after %d secrets: the server's configuration does not know the account of %s", n, account)
			}
		}
	}
}

func TestKeysRefusesContradictions(t *testing.T) {
	other := complete(t)
	for name, test := range map[string]struct {
		damage func(*Memory)
		want   []string
	}{
		"the operator is gone and its account is not": {
			func(v *Memory) { v.remove("substorm-nats-operator") },
			[]string{"substorm-nats-operator is missing", "substorm-nats-auth", "restore"},
		},
		"the authority is gone and its certificates are not": {
			func(v *Memory) { v.remove("substorm-tls-ca") },
			[]string{"substorm-tls-ca is missing", "substorm-tls-nats", "restore"},
		},
		"the account is another operator's": {
			func(v *Memory) {
				maps.Copy(v.data(t, "substorm-nats-account"), other.data(t, "substorm-nats-account"))
			},
			[]string{"secret substorm-nats-account", "is not the account"},
		},
		"a certificate is another authority's": {
			func(v *Memory) { maps.Copy(v.data(t, "substorm-tls-s3"), other.data(t, "substorm-tls-s3")) },
			[]string{"secret substorm-tls-s3", "unknown authority", "delete the secret"},
		},
		"a key is empty": {
			func(v *Memory) { delete(v.data(t, "substorm-s3"), "secretAccessKey") },
			[]string{"secret substorm-s3 has no secretAccessKey", "restore it"},
		},
		"the signing key is another's": {
			func(v *Memory) {
				v.data(t, "substorm-nats-operator")[keySigningSeed] = other.data(t, "substorm-nats-operator")[keySigningSeed]
			},
			[]string{"secret substorm-nats-auth", "does not name account-signing.seed"},
		},
		"the consumers' account is another one": {
			func(v *Memory) {
				maps.Copy(v.data(t, "substorm-nats-consumers"), other.data(t, "substorm-nats-consumers"))
			},
			[]string{"secret substorm-nats-consumers", "is not the account"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			v := complete(t)
			test.damage(v)
			count := len(v.Made)
			err := makeKeys(t, v)
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not say %q", err, want)
				}
			}
			if len(v.Made) != count {
				t.Errorf("made %v before it refused", v.names()[count:])
			}
		})
	}
}

// late is a vault in which another process makes every Secret between our look and our attempt.
type late struct {
	Memory
	other *Memory
}

func (l *late) Create(ctx context.Context, s *corev1.Secret) (bool, error) {
	for _, theirs := range l.other.Made {
		if theirs.Name == s.Name {
			if _, err := l.Memory.Create(ctx, theirs); err != nil {
				return false, err
			}
		}
	}
	return l.Memory.Create(ctx, s)
}

func TestKeysBuildsOnWhatAnotherRunMadeMeanwhile(t *testing.T) {
	l := &late{other: complete(t)}
	if err := makeKeys(t, l); err != nil {
		t.Fatal(err)
	}
	for _, name := range allSecrets {
		if diff := cmp.Diff(l.other.data(t, name), l.data(t, name)); diff != "" {
			t.Errorf("%s is not the one that was there first", name)
		}
	}
}
