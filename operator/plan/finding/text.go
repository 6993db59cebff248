// SPDX-License-Identifier: Apache-2.0

package finding

import (
	"fmt"
	"strings"
)

// List joins the first few of many names.
func List(names []string) string {
	const few = 5
	if len(names) <= few {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:few], ", "), len(names)-few)
}
