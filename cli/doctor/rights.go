// SPDX-License-Identifier: Apache-2.0

//go:build linux

package doctor

import (
	"fmt"
	"os"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/prometheus/procfs"

	"github.com/substorm/substorm/internal/cgroup"
)

// enoughFiles that a process may have open: 1024 connections each of a handful of Instruments, and the files of the streams.
const enoughFiles = 8192

// rights looks at those of the Site that runs, or of this process, which stands for one that is started here.
func rights(f folder) Check {
	const check = "rights"
	pid, who := os.Getpid(), "this process"
	if f.holder != 0 {
		pid, who = f.holder, fmt.Sprintf("the Site that runs (process %d)", f.holder)
	}
	process, err := procfs.NewProc(pid)
	if err != nil {
		return warning(check, "run substorm doctor once more", "%s cannot be looked at: %v", who, err)
	}
	status, err := process.NewStatus()
	if err != nil {
		return warning(check, "run substorm doctor as root", "%s cannot be looked at: %v", who, err)
	}
	limits, err := process.Limits()
	if err != nil {
		return warning(check, "run substorm doctor as root", "%s cannot be looked at: %v", who, err)
	}
	umask, err := umaskOf(pid)
	if err != nil {
		return warning(check, "run substorm doctor as root", "%s cannot be looked at: %v", who, err)
	}
	return judgeRights(who, f, process.PID == f.holder, standing{int(status.UIDs[1]), umask, limits.OpenFiles})
}

// standing is what a process may do.
type standing struct {
	user, umask int
	files       uint64
}

func judgeRights(who string, f folder, running bool, held standing) Check {
	const check = "rights"
	found := fmt.Sprintf("%s is of user %d, with umask %04o and %d open files at most", who, held.user, held.umask, held.files)
	var advice []string
	if held.user == 0 && running {
		advice = append(advice, "a Site needs no rights of root: run it as a user of its own, as packaging/substorm.service does")
	}
	if held.user == 0 && !running && f.owner < 0 { // the first look, before the service's user has a folder
		found += "; the Site gets the user that runs substorm up, which needs no rights of root"
	}
	if held.user == 0 && !running && f.owner >= 0 {
		advice = append(advice, "run substorm up, and this, as a user of its own, as packaging/substorm.service does: root may do what the Site may not")
	}
	if f.owner >= 0 && f.owner != held.user {
		found += fmt.Sprintf("; the data folder is of user %d", f.owner)
		advice = append(advice, fmt.Sprintf("run substorm up as user %d, or what it writes is of two users", f.owner))
	}
	if held.files < enoughFiles {
		advice = append(advice, fmt.Sprintf("allow %d or more open files (LimitNOFILE= of the service, ulimit -n): each connection takes one", enoughFiles))
	}
	if held.umask&0o700 != 0 {
		return failed(check, "set a umask such as 0077: with this one it may not read what it wrote", "%s", found)
	}
	if len(advice) > 0 {
		return warning(check, strings.Join(advice, "; "), "%s", found)
	}
	return fine(check, "%s", found)
}

// Memory in bytes that has to be left: what a Site with some Instruments takes, and, where it runs, what it may need for a while.
const (
	enoughMemory = 256 << 20
	spareMemory  = 64 << 20
)

// memory looks how much is left, of the computer and of the control group.
func memory(running bool) Check {
	fs, err := procfs.NewDefaultFS()
	var info procfs.Meminfo
	if err == nil {
		info, err = fs.Meminfo()
	}
	if err != nil || info.MemAvailableBytes == nil {
		return warning("memory", "look with free", "the kernel does not say how much is left: %v", err)
	}
	return judgeMemory(*info.MemAvailableBytes, cgroup.Memory(), running)
}

func judgeMemory(available uint64, limit int64, running bool) Check {
	const check = "memory"
	needed := uint64(enoughMemory)
	if running {
		needed = spareMemory
	}
	found := humanize.IBytes(available) + " are left"
	if limit > 0 {
		found += fmt.Sprintf("; the control group of this process may take %s", humanize.IBytes(uint64(limit)))
		if limit < enoughMemory {
			return warning(check, "raise it (MemoryMax= of the service): a Site with three Instruments takes some 160 MB", "%s", found)
		}
	}
	if available < needed {
		return warning(check, fmt.Sprintf("stop what else runs here, or add memory: %s should be left", humanize.IBytes(needed)), "%s", found)
	}
	return fine(check, "%s", found)
}
