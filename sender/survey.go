// SPDX-License-Identifier: Apache-2.0

package sender

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/substorm/substorm/internal/progress"
	"github.com/substorm/substorm/internal/usage"
	"github.com/substorm/substorm/sender/queue"
)

// A folder that an instrument has written holds files of few kinds. One of more than unaskedFiles files and unaskedSuffixes suffixes is
// likely another one than was meant, and what is sent cannot be called back by the sender.
const (
	unaskedFiles    = 10
	unaskedSuffixes = 2
	// shownNames is how many names or suffixes a message lists.
	shownNames = 5
)

// secretNames are patterns of names, in lower case, of what is hidden, or opens something.
var secretNames = []string{
	".*", "id_rsa*", "id_dsa*", "id_ecdsa*", "id_ed25519*", "*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.kdbx", "*.gpg", "*.asc", "*.ppk", "*.ovpn",
	"*.creds", "*.seed", "*.nk", "kubeconfig*", "*.kubeconfig", "authorized_keys*", "known_hosts*", "credentials*", "secret*", "*secret*.y*ml", "*passwd*", "*password*",
	"token", "token.*", "*.token", "*.tfstate", "shadow", "privatekey*", "private_key*", "private-key*", "ssh_host_*_key",
}

// looksSecret reports whether a file's path below the folder that was named looks like one of something that is hidden, or opens something.
func looksSecret(rel string) bool {
	for part := range strings.SplitSeq(strings.ToLower(filepath.ToSlash(rel)), "/") {
		for _, pattern := range secretNames {
			if is, err := filepath.Match(pattern, part); is && err == nil {
				return true
			}
		}
	}
	return false
}

// isHidden reports whether a path that was named looks like that, or lies in a folder that does, also by another name, as "." within it or
// a link to it.
func isHidden(path string) bool {
	whole, err := filepath.Abs(path)
	real, _ := resolve(path)
	return err == nil && (looksSecret(whole) || looksSecret(real))
}

// suffixOf is the suffix that shows a file's kind: .jpg, or .pgm.gz. Numbers do not distinguish
// kinds.
func suffixOf(name string) string {
	name = strings.ToLower(filepath.Base(name))
	suffix := filepath.Ext(name)
	switch {
	case suffix == "" || suffix == name:
		return "none"
	case strings.Trim(suffix[1:], "0123456789") == "":
		return "a number"
	case slices.Contains([]string{".gz", ".zst", ".bz2", ".xz", ".z"}, suffix):
		if inner := filepath.Ext(strings.TrimSuffix(name, suffix)); strings.Trim(inner, ".0123456789") != "" {
			return inner + suffix
		}
	}
	return suffix
}

// survey is what there is to send.
type survey struct {
	files    int
	bytes    int64
	suffixes map[string]int
	// opening are the first names of files that are hidden or look like keys or other secrets, and hidden is the
	// number of all such files.
	opening []string
	hidden  int
}

// surveyed looks at all files that are named, and calls each, if set, with each of them.
func (in input) surveyed(each func(item)) (survey, error) {
	all := survey{suffixes: map[string]int{}}
	var failed error
	for _, path := range in.paths {
		if path == stdinName {
			continue
		}
		hidden := isHidden(path)
		for file, err := range files(path) {
			if err != nil {
				failed = cmp.Or(failed, err)
				continue
			}
			if in.ignores != nil && in.ignores(file) {
				continue
			}
			all.files++
			all.bytes += file.size
			all.suffixes[suffixOf(file.name)]++
			if hidden || looksSecret(file.rel) || holdsSecret(file) {
				if all.hidden++; len(all.opening) < shownNames {
					all.opening = append(all.opening, file.name)
				}
			}
			if each != nil {
				each(file)
			}
		}
	}
	return all, failed
}

// mixed reports whether a person is asked first.
func (s survey) mixed() bool {
	return s.hidden > 0 || s.files > unaskedFiles && len(s.suffixes) > unaskedSuffixes
}

// String returns the number of files and of each kind.
func (s survey) String() string {
	kinds := slices.SortedFunc(maps.Keys(s.suffixes), func(a, b string) int {
		return cmp.Or(cmp.Compare(s.suffixes[b], s.suffixes[a]), cmp.Compare(a, b))
	})
	var each []string
	for _, kind := range kinds[:min(len(kinds), shownNames)] {
		each = append(each, fmt.Sprintf("%s %d", kind, s.suffixes[kind]))
	}
	if more := len(kinds) - len(each); more > 0 {
		each = append(each, fmt.Sprintf("%d more", more))
	}
	text := fmt.Sprintf("%d files, %s, suffixes: %s", s.files, humanize.Bytes(uint64(s.bytes)), strings.Join(each, ", "))
	if s.hidden > 0 {
		text += fmt.Sprintf("; %d hidden, or with names or contents of keys or credentials: %s", s.hidden, strings.Join(s.opening, ", "))
		if s.hidden > len(s.opening) {
			text += ", …"
		}
	}
	return text
}

// confirm has a person decide about a mixed tree before anything of it is sent.
func (cfg *Config) confirm(in input) error {
	if cfg.Yes || in.single() {
		return nil
	}
	all, err := in.surveyed(nil)
	if err != nil && in.ignores == nil {
		return err
	}
	if !all.mixed() {
		return nil
	}
	if cfg.Ask != nil {
		sends, err := cfg.Ask(fmt.Sprintf("%v.\nReceived files are archived, and the Instrument says who may read them. Send all of them?", all))
		if err != nil || sends {
			return err
		}
		return usage.Errorf("nothing is sent")
	}
	return usage.Errorf("nothing is sent, as these do not look like the files of one instrument: %v: name the files to send, list them with --dry-run, or send all of them with --yes", all)
}

// confirmWatched has a person decide about mixed trees in watched folders before a queue takes anything of them for the first time. Later
// no question is asked: new files are the instrument's, and a service restarts by itself. Files that cannot be read are not taken either.
// Away are the folders that are not there, so that nothing is known of them yet.
func (cfg *Config) confirmWatched() (away []string, err error) {
	if len(cfg.Queue.Watch) == 0 || cfg.Yes {
		return nil, nil
	}
	confirmed, err := queue.Watched(cfg.Queue.Dir)
	if err != nil {
		return nil, err
	}
	in := cfg.watched()
	for _, dir := range cfg.Queue.Watch {
		if confirmed(dir) {
			continue
		}
		if _, err := os.Stat(dir); err != nil {
			away = append(away, dir)
		} else {
			in.paths = append(in.paths, dir)
		}
	}
	return away, cfg.confirm(in)
}

// watched are the files in watched folders, without the ones that are not taken.
func (cfg *Config) watched(dirs ...string) input {
	w := watcher{ignore: cfg.ignored()}
	return input{paths: dirs, ignores: w.leaves}
}

// leaves reports whether a file of a watched folder is not taken as it is.
func (w *watcher) leaves(file item) bool { return file.size == 0 || w.ignoresBelow(file.rel) }

// single reports whether one file is named: it is meant, whatever its name is.
func (in input) single() bool {
	if len(in.paths) != 1 {
		return false
	}
	info, err := os.Stat(in.paths[0])
	return err != nil || !info.IsDir()
}

// AskOn returns what asks a person yes-or-no questions; nil where input or output is no terminal.
func AskOn(stdin io.Reader, out io.Writer) func(question string) (bool, error) {
	file, is := stdin.(*os.File)
	if !is || !progress.IsTerminal(file) || !progress.IsTerminal(out) {
		return nil
	}
	return func(question string) (bool, error) {
		fmt.Fprintf(out, "%s [y/N] ", question)
		answer, err := bufio.NewReader(file).ReadString('\n')
		if err != nil && answer == "" {
			return false, fmt.Errorf("read the answer: %w", err)
		}
		answer = strings.ToLower(strings.TrimSpace(answer))
		return answer == "y" || answer == "yes", nil
	}
}

// dryRun lists what would be sent, and sends nothing.
func dryRun(cfg Config, out io.Writer) error {
	in := input{paths: cfg.Paths}
	w := watcher{ignore: cfg.ignored()}
	if len(cfg.Queue.Watch) > 0 {
		in.paths = cfg.Queue.Watch
	}
	if err := in.check(); err != nil {
		return err
	}
	if slices.Contains(in.paths, stdinName) {
		return usage.Errorf("--dry-run lists files and folders, but - is standard input")
	}
	ignored := 0
	all, err := in.surveyed(func(file item) {
		if len(cfg.Queue.Watch) > 0 && w.leaves(file) {
			ignored++
			return
		}
		name := ""
		if cfg.HTTP != nil {
			rel := file.rel
			if info, err := os.Stat(file.path); err == nil {
				if cfg.Queue.rewrites(filepath.Base(rel)) {
					rel, _ = versionName(rel, info.ModTime(), time.Now(), time.Time{}, queue.Key{})
				}
			}
			name = cfg.HTTP.fullName(cfg.HTTP.nameOf(rel))
		}
		fmt.Fprintf(out, "%d\t%s", file.size, file.name)
		if name != "" {
			fmt.Fprintf(out, "\t%s", name)
		}
		fmt.Fprintln(out)
	})
	if err != nil {
		return err
	}
	fmt.Fprintln(cfg.Messages, all)
	if ignored > 0 {
		fmt.Fprintf(cfg.Messages, "%d of them are empty or have names that --watch ignores, and are not listed\n", ignored)
	}
	fmt.Fprintln(cfg.Messages, "nothing was sent")
	return nil
}

// ignoresBelow reports whether a file is ignored because of its name or the name of a folder.
func (w *watcher) ignoresBelow(rel string) bool {
	return slices.ContainsFunc(strings.Split(filepath.ToSlash(rel), "/"), (&scanning{watcher: w}).ignores)
}
