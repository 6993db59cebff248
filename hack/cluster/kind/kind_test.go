// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"os"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

func TestConfig(t *testing.T) {
	c := New("x", t.TempDir(), nil)
	if err := os.WriteFile(c.configPath(), []byte(config(2)), 0o600); err != nil {
		t.Fatal(err)
	}
	if n, err := c.count(); n != 2 || err != nil {
		t.Errorf("a configuration of 2 nodes is read as %d, %v", n, err)
	}
	var parsed struct {
		Kind, APIVersion     string
		KubeadmConfigPatches []string
		Nodes                []struct{ Role string }
	}
	if err := yaml.UnmarshalStrict([]byte(config(2)), &parsed); err != nil {
		t.Fatal(err)
	}
	if len(parsed.Nodes) != 3 || parsed.Nodes[0].Role != "control-plane" || len(parsed.KubeadmConfigPatches) != 2 {
		t.Errorf("parsed: %+v", parsed)
	}
	for _, patch := range parsed.KubeadmConfigPatches {
		var any map[string]any
		if err := yaml.Unmarshal([]byte(patch), &any); err != nil || !strings.HasSuffix(any["kind"].(string), "Configuration") {
			t.Errorf("patch %v: %v", any, err)
		}
	}
}
