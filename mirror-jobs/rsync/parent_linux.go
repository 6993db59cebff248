// SPDX-License-Identifier: Apache-2.0

package rsync

import (
	"os/exec"
	"runtime"
	"syscall"
)

// endWithParent has the kernel end rsync, which then ends ssh, when this process is killed: otherwise it would continue beside the run
// that follows. The kernel looks at the thread that began it (https://go.dev/issue/27505), so the caller keeps that until it calls
// release.
func endWithParent(cmd *exec.Cmd) (release func()) {
	runtime.LockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	return runtime.UnlockOSThread
}
