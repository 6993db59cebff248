// SPDX-License-Identifier: Apache-2.0

// Package service has the system run a sender: systemd on Linux, the service
// manager on Windows.
package service

import (
	"fmt"
	"path"
	"regexp"
	"strings"

	"github.com/substorm/substorm/internal/usage"
)

// Spec is what the system is to run.
type Spec struct {
	// Name of the unit or service.
	Name string
	// User who runs it; empty for one that the system makes, who owns nothing but the
	// queue and reads what everybody may, and Secrets.
	User string
	// Program and its arguments; paths are absolute.
	Program string
	Args    []string
	// Queue is where it keeps what has no receipt, Watch what it reads, and, where
	// Move, takes away.
	Queue string
	Watch []string
	Move  bool
	// Secrets are files that Args refer to and that few users may read: a token, a key.
	Secrets []string
}

var (
	unitName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,100}$`)
	userName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.-]{0,30}$`)
)

// stateFolder is where systemd makes folders for services.
const stateFolder = "/var/lib/"

// state is the queue's place below stateFolder, empty where it is elsewhere.
func (s Spec) state() string {
	below, ok := strings.CutPrefix(path.Clean(s.Queue), stateFolder)
	if !ok {
		return ""
	}
	return below
}

// check finds what cannot work.
func (s Spec) check() error {
	switch {
	case !unitName.MatchString(s.Name):
		return usage.Errorf("--name %q is not the name of a service: use letters, digits, - _ and .", s.Name)
	case s.Queue == "" || len(s.Watch) == 0:
		return usage.Errorf("a service needs --watch and --queue: %s send service print -- --to gateway.example:30101 --watch /data --queue /var/lib/substorm-send", "substorm")
	}
	for _, arg := range append([]string{s.Program}, s.Args...) {
		if strings.ContainsAny(arg, "\n\r\x00") {
			return usage.Errorf("argument %q has a line break, which a unit file cannot hold", arg)
		}
	}
	return nil
}

// checkUnit finds what cannot work with systemd.
func (s Spec) checkUnit() error {
	if err := s.check(); err != nil {
		return err
	}
	switch {
	case s.User != "" && !userName.MatchString(s.User):
		return usage.Errorf("--user %q is not the name of a user", s.User)
	case s.User == "" && s.Move:
		return usage.Errorf("--take move needs --user, a user who may remove files of the watched folders")
	case s.User == "" && s.state() == "":
		return usage.Errorf("the queue %s needs --user, its owner; a queue below %s needs none", s.Queue, stateFolder)
	}
	return nil
}

// Unit returns the unit file of systemd.
func (s Spec) Unit() (string, error) {
	if err := s.checkUnit(); err != nil {
		return "", err
	}
	var out strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&out, format+"\n", args...) }
	line("# Written by the sender's `service install`; to change it, install again.")
	line("[Unit]")
	line("Description=Substorm sender: %s", escape(strings.Join(s.Watch, " ")))
	line("Documentation=https://github.com/substorm/substorm/blob/main/docs/how-to/sender.md")
	line("Wants=network-online.target")
	line("After=network-online.target time-sync.target")
	line("RequiresMountsFor=%s", quoted(append([]string{s.Queue}, s.Watch...)))
	line("StartLimitIntervalSec=0")
	line("")
	line("[Service]")
	line("Type=exec")
	line("ExecStart=%s", s.command())
	for i, file := range s.credentials() {
		line("LoadCredential=%s:%s", credential(i), escape(file)) // to the line's end, without quotes
	}
	line("Restart=always")
	line("RestartSec=2")
	line("TimeoutStopSec=15")
	s.owner(line)
	out.WriteString(sandbox)
	line("")
	line("[Install]")
	line("WantedBy=multi-user.target")
	return out.String(), nil
}

// credentials are the files that systemd reads and hands to the user that it creates, who may not
// read the originals. A user of the machine reads them itself.
func (s Spec) credentials() []string {
	if s.User != "" {
		return nil
	}
	return s.Secrets
}

// credential is what systemd calls the i-th secret.
func credential(i int) string { return fmt.Sprintf("secret%d", i) }

// command is the command line as systemd reads it. Secrets are where systemd puts them.
func (s Spec) command() string {
	words := make([]string, 0, len(s.Args)+1)
	for _, arg := range append([]string{s.Program}, s.Args...) {
		word := strings.ReplaceAll(quoted([]string{arg}), "$", "$$")
		for i, file := range s.credentials() {
			if flag, isIt := strings.CutSuffix(arg, file); isIt && (flag == "" || strings.HasPrefix(flag, "--") && strings.HasSuffix(flag, "=")) {
				word = flag + "${CREDENTIALS_DIRECTORY}/" + credential(i)
			}
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

// owner writes the lines for the user and the writable folders.
func (s Spec) owner(line func(string, ...any)) {
	if s.User == "" {
		line("DynamicUser=yes")
	} else {
		line("User=%s", s.User)
	}
	line("UMask=0027")
	var writable []string
	if below := s.state(); below != "" {
		line("StateDirectory=%s", quoted([]string{below}))
		line("StateDirectoryMode=0750")
	} else {
		writable = append(writable, s.Queue)
	}
	if s.Move {
		writable = append(writable, s.Watch...)
	}
	if len(writable) > 0 {
		line("ReadWritePaths=%s", quoted(writable))
	}
}

// sandbox: a sender reads files, writes its queue and speaks TCP.
const sandbox = `NoNewPrivileges=yes
ProtectSystem=strict
ProtectHome=read-only
PrivateDevices=yes
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
LockPersonality=yes
MemoryDenyWriteExecute=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
CapabilityBoundingSet=
`

// quoted writes words as systemd reads them, see systemd.syntax(7).
func quoted(words []string) string {
	all := make([]string, 0, len(words))
	for _, w := range words {
		if w != "" && !strings.ContainsFunc(w, needsQuotes) {
			all = append(all, escape(w))
			continue
		}
		all = append(all, `"`+strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(escape(w))+`"`)
	}
	return strings.Join(all, " ")
}

func needsQuotes(r rune) bool {
	return r <= ' ' || strings.ContainsRune("\\\"'`;", r)
}

// escape protects what systemd takes for specifiers.
func escape(text string) string { return strings.ReplaceAll(text, "%", "%%") }
