// SPDX-License-Identifier: Apache-2.0

package english_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"k8s.io/kubectl/pkg/util/i18n"

	_ "github.com/substorm/substorm/cli/resources"
)

// TestNotTranslated starts itself in German, where kubectl's packages translate their texts as they are initialized.
func TestNotTranslated(t *testing.T) {
	const text = "Apply a configuration to a resource by file name or stdin"
	if os.Getenv("LC_ALL") == "de_DE.UTF-8" {
		t.Log(i18n.T(text))
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run", t.Name(), "-test.v")
	cmd.Env = append(os.Environ(), "LC_ALL=de_DE.UTF-8")
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), text) {
		t.Errorf("in German: %v\n%s", err, out)
	}
}
