// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"github.com/spf13/cobra"

	"github.com/substorm/substorm/cli/doctor"
	"github.com/substorm/substorm/cli/up"
)

// platformCommands are those that run on this system only.
func platformCommands() []*cobra.Command {
	return []*cobra.Command{up.Command(), up.ChildCommand(), doctor.Command()}
}
