// SPDX-License-Identifier: Apache-2.0

package standalone

import (
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/substorm/substorm/internal/testenv"
)

// Import imports the files of a folder into an instrument of a Site in one process, once the Site knows that, and returns when they
// are listed.
func Import(up *testenv.Standalone, folder, instrument string) (err error) {
	for range testenv.Attempts() {
		cmd := exec.Command(up.Program(), "import", folder, "-i", instrument, "-t", "{name}", "-q")
		cmd.Env = append(os.Environ(), "KUBECONFIG="+up.Kubeconfig)
		out, failed := cmd.CombinedOutput()
		if failed == nil {
			return nil
		}
		err = fmt.Errorf("import %s: %w\n%s", instrument, failed, out)
		if !strings.Contains(string(out), "has no Instrument") {
			break
		}
	}
	return err
}
