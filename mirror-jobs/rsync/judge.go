// SPDX-License-Identifier: Apache-2.0

package rsync

import (
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/push"
)

// signs are what rsync and ssh say, and the reason that it stands for: the first that is there
// counts. Exit codes of rsync(1) do not tell these apart.
var signs = []struct{ text, reason string }{
	{"rather than greeting", wire.MirrorReasonProtocol}, // another server answers
	{"Host key verification failed", wire.MirrorReasonHostKeyMismatch},
	{"REMOTE HOST IDENTIFICATION HAS CHANGED", wire.MirrorReasonHostKeyMismatch},
	{"No space left on device", wire.MirrorReasonPartnerFull},
	{"Disk quota exceeded", wire.MirrorReasonPartnerFull},
	{authFailed, wire.MirrorReasonAccessDenied},
	{"Permission denied (", wire.MirrorReasonAccessDenied},
	{"@ERROR: access denied", wire.MirrorReasonAccessDenied},
	{"read only", wire.MirrorReasonAccessDenied},
	{"configured to refuse", wire.MirrorReasonAccessDenied},
	{"has been disabled on this server", wire.MirrorReasonAccessDenied},
	{"invalid file mode 00 for ", wire.MirrorReasonAccessDenied},
	{"@ERROR: Unknown module", wire.MirrorReasonProtocol},
	{"Connection refused", wire.MirrorReasonUnreachable},
	{"Could not resolve hostname", wire.MirrorReasonUnreachable},
	{"Name or service not known", wire.MirrorReasonUnreachable},
	{"No route to host", wire.MirrorReasonUnreachable},
	{"timed out", wire.MirrorReasonUnreachable},
	{"timeout", wire.MirrorReasonUnreachable},
	{"Connection reset by peer", wire.MirrorReasonUnreachable},
	{"Broken pipe", wire.MirrorReasonUnreachable},
	{"connection unexpectedly closed", wire.MirrorReasonUnreachable},
}

// refused are the signs of a side that answers and lets us in, and refuses what it was asked for: options by "refuse options" of a
// daemon, whose receiver does not know the files to delete where it refuses delete-missing-args, or by rrsync; or all, since it is full.
var refused = []string{"configured to refuse", "has been disabled on this server", "invalid file mode 00 for ", "No space left on device", "Disk quota exceeded"}

// authFailed is what a daemon says of a user or a password.
const authFailed = "auth failed"

// reasonOf says as a reason why the other side does not take a file.
func reasonOf(why string) string {
	if strings.Contains(quotedNames.ReplaceAllString(why, ""), "Permission denied") {
		return wire.MirrorReasonAccessDenied
	}
	return wire.MirrorReasonProtocol
}

// codes are exit values of rsync(1) that say why where it said nothing else.
var codes = map[int]string{
	5: wire.MirrorReasonAccessDenied, 10: wire.MirrorReasonUnreachable, 12: wire.MirrorReasonUnreachable,
	30: wire.MirrorReasonUnreachable, 35: wire.MirrorReasonUnreachable, 255: wire.MirrorReasonUnreachable,
}

// partial are exit values that are about some files.
var partial = map[int]bool{23: true, vanished: true}

// vanished is the exit value where all that failed are files that were not there any more.
const vanished = 24

var vanishedLine = regexp.MustCompile(`(?m)^.*file has vanished: .*$`)

// withoutNames is what rsync and ssh say without the names of files, which may hold any sign.
func withoutNames(said string) string {
	for _, line := range []*regexp.Regexp{vanishedLine, absentLine} {
		said = line.ReplaceAllString(said, "")
	}
	return quotedNames.ReplaceAllString(said, `""`)
}

// absentLine ends with a name that has no quotation marks.
var absentLine = regexp.MustCompile(`(?m)^WARNING: parent dir is absent in the file list: .*$`)

// quotedNames goes to the last quotation mark of a line: a name may hold some.
var quotedNames = regexp.MustCompile(`".*"`)

// full is how rsync ends what it says of a file that the partner has no space for: of the other files it is true, too.
var full = regexp.MustCompile(`^rsync: .*: (No space left on device|Disk quota exceeded) \([0-9]+\)$`)

// partnerLines are the lines that are about the partner as a whole where some files failed: a daemon's, and those that tell of its disk.
func partnerLines(said string) string {
	var b strings.Builder
	for line := range strings.Lines(said) {
		if strings.HasPrefix(line, "@ERROR") || full.MatchString(strings.TrimRight(line, "\r\n")) {
			b.WriteString(line)
		}
	}
	return b.String()
}

// judge says what an error of rsync means: some files failed, or the partner as a whole takes
// none (push.Problem).
func judge(err error, said string) (failures, error) {
	var ended *exec.ExitError
	if !errors.As(err, &ended) {
		return failures{}, fmt.Errorf("rsync: %w", err)
	}
	code := ended.ExitCode()
	reason, text, line, answered := codes[code], withoutNames(said), firstLine(said), false
	if partial[code] {
		text = partnerLines(text)
	}
	for _, s := range signs {
		if before, after, is := strings.Cut(text, s.text); is {
			rest, _, _ := strings.Cut(after, "\n")
			answered = slices.Contains(refused, s.text)
			reason, line = s.reason, wire.SaidText(before[strings.LastIndexByte(before, '\n')+1:]+s.text+rest)
			break
		}
	}
	if partial[code] && (reason == "" || reason == wire.MirrorReasonUnreachable) {
		return failures{some: true, vanished: code == vanished, said: said}, nil
	}
	if reason == "" {
		reason = wire.MirrorReasonProtocol
	}
	return failures{}, &push.Problem{Reason: reason, Answered: answered, Err: fmt.Errorf("rsync ended with %d: %s", code, line)}
}

// firstLine is what rsync said first that says something: of files that have vanished, as those that are to be removed, it always does.
func firstLine(said string) string {
	for line := range strings.Lines(vanishedLine.ReplaceAllString(said, "")) {
		if line = wire.SaidText(line); line != "" && !strings.HasPrefix(line, "@@@") {
			return line
		}
	}
	return "it said nothing"
}

var octal = regexp.MustCompile(`\\#[0-7]{3}`)

// unescaped is a name as it was before rsync wrote bytes of it as \#ooo.
func unescaped(name string) string {
	return octal.ReplaceAllStringFunc(name, func(code string) string {
		n, err := strconv.ParseUint(code[2:], 8, 8)
		if err != nil {
			return code
		}
		return string([]byte{byte(n)})
	})
}

// bounded keeps the beginning of what is written.
type bounded struct {
	strings.Builder
	most int
}

// Write implements io.Writer.
func (b *bounded) Write(p []byte) (int, error) {
	_, _ = b.Builder.Write(p[:min(len(p), max(0, b.most-b.Len()))]) // it never fails
	return len(p), nil
}
