// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/yuin/goldmark/ast"
	"mvdan.cc/sh/v3/syntax"

	"github.com/substorm/substorm/cli"
	"github.com/substorm/substorm/sender"
)

var (
	runBy  = regexp.MustCompile(`^<!-- run by: (Test\w+) -->\s*$`)
	notRun = regexp.MustCompile(`^<!-- not run: (.+) -->\s*$`)
)

// TestCommands: each block of commands is run by a test, which a comment before it names
// (<!-- run by: TestWithoutUs -->), or it is not and a comment says why (<!-- not run: … -->), or it has only
// commands that can be checked without running them: their names, flags, arguments, files, kinds, conditions and
// fields exist. These checks are made in all blocks.
func TestCommands(t *testing.T) {
	tests := testNames(t)
	for _, path := range pages(t) {
		page, source := parse(t, path)
		if strings.HasPrefix(string(source), "<!-- Generated") {
			continue
		}
		each(t, page, func(n ast.Node) {
			block, ok := n.(*ast.FencedCodeBlock)
			if !ok {
				return
			}
			at := fmt.Sprintf("%s, block %q", path, firstLine(block, source))
			language := string(block.Language(source))
			script := string(block.Lines().Value(source))
			switch language {
			case "":
				t.Errorf("%s has no language: say sh, console for commands with what they print, or text", at)
			case "console":
				script = typed(script)
			case "sh":
			default:
				return
			}
			unchecked := check(t, at, script)
			by, why := mark(block, source)
			switch {
			case by != "" && !tests[by]:
				t.Errorf("%s is run by %s: there is no such test", at, by)
			case by == "" && why == "" && len(unchecked) > 0:
				t.Errorf("%s: nothing checks %s: write before it <!-- run by: TestName -->, or <!-- not run: REASON -->", at, strings.Join(unchecked, ", "))
			}
		})
	}
}

// TestInlineCommands: the commands of substorm that prose and examples of commands name have these flags.
func TestInlineCommands(t *testing.T) {
	for _, path := range pages(t) {
		page, source := parse(t, path)
		each(t, page, func(n ast.Node) {
			span, ok := n.(*ast.CodeSpan)
			if !ok {
				return
			}
			text := string(span.Text(source)) //nolint:staticcheck // the text of a code span has no markup
			words := strings.Fields(text)
			if len(words) < 2 || strings.ContainsAny(text, "|…\\") || !slices.Contains([]string{"substorm", "kubectl", "substorm-send"}, words[0]) {
				return
			}
			if words[0] == "kubectl" && words[1] != "substorm" {
				return
			}
			if err := substorm(words, false); err != nil {
				t.Errorf("%s: `%s`: %v", path, text, err)
			}
		})
	}
	for _, root := range []*cobra.Command{cli.Command(), sender.Command("substorm-send")} {
		examples(t, root)
	}
}

func examples(t *testing.T, c *cobra.Command) {
	t.Helper()
	check(t, "the example of "+c.CommandPath(), c.Example)
	for _, sub := range c.Commands() {
		examples(t, sub)
	}
}

func firstLine(block *ast.FencedCodeBlock, source []byte) string {
	line, _, _ := strings.Cut(string(block.Lines().Value(source)), "\n")
	return line
}

// mark is what the comment before a block says.
func mark(block ast.Node, source []byte) (by, why string) {
	comment, ok := block.PreviousSibling().(*ast.HTMLBlock)
	if !ok {
		return "", ""
	}
	text := strings.TrimSpace(string(comment.Lines().Value(source)))
	if m := runBy.FindStringSubmatch(text); m != nil {
		by = m[1]
	}
	if m := notRun.FindStringSubmatch(text); m != nil {
		why = m[1]
	}
	return by, why
}

// typed are the lines of a terminal that somebody typed.
func typed(console string) string {
	var lines []string
	for _, line := range strings.Split(console, "\n") {
		if command, ok := strings.CutPrefix(line, "$ "); ok {
			lines = append(lines, command)
		}
	}
	return strings.Join(lines, "\n")
}

// testNames are the tests of the project.
func testNames(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	name := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		for _, m := range name.FindAllSubmatch(source, -1) {
			names[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// check checks the commands of a script and returns the programs that it knows nothing of.
func check(t *testing.T, at, script string) (unchecked []string) {
	t.Helper()
	file, err := syntax.NewParser().Parse(strings.NewReader(script), "")
	if err != nil {
		t.Errorf("%s: %v", at, err)
		return nil
	}
	loops := map[string][]string{} // what a variable of a loop is in turn
	syntax.Walk(file, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.WordIter:
			for _, item := range n.Items {
				loops[n.Name.Value] = append(loops[n.Name.Value], item.Lit())
			}
		case *syntax.CallExpr:
			words := words(n, loops)
			if len(words) == 0 {
				return true
			}
			of, known := checks[words[0]]
			if !known {
				unchecked = append(unchecked, words[0])
				return true
			}
			if err := of(words); err != nil {
				t.Errorf("%s: %s: %v", at, strings.Join(words, " "), err)
			}
		}
		return true
	})
	return unchecked
}

// words are those of a command: what only the shell knows is x, and what a loop's variable is stands with commas between.
func words(call *syntax.CallExpr, loops map[string][]string) (words []string) {
	for _, arg := range call.Args {
		var out strings.Builder
		var write func(parts []syntax.WordPart)
		write = func(parts []syntax.WordPart) {
			for _, part := range parts {
				switch part := part.(type) {
				case *syntax.Lit:
					out.WriteString(strings.ReplaceAll(part.Value, "\\\n", ""))
				case *syntax.SglQuoted:
					out.WriteString(part.Value)
				case *syntax.DblQuoted:
					write(part.Parts)
				case *syntax.ParamExp:
					if items := loops[part.Param.Value]; len(items) > 0 {
						out.WriteString(strings.Join(items, ","))
					} else {
						out.WriteString("x")
					}
				default:
					out.WriteString("x")
				}
			}
		}
		write(arg.Parts)
		words = append(words, out.String())
	}
	return words
}

// checks are of programs whose commands can be checked without running them.
var checks = map[string]func(words []string) error{
	"substorm": substormCommand, "bin/substorm": substormCommand, "substorm-send": substormCommand,
	"kubectl": kubectl, "helm": helm, "make": makeTargets, "go": goRun, "docker": docker,
	// These take what the others print.
	"alias": nothing, "cmp": nothing, "cut": nothing, "eval": nothing, "head": nothing, "sha256sum": nothing, "gunzip": nothing, "file": nothing, "jq": nothing,
	"openssl": nothing,
}

func nothing([]string) error { return nil }

func substormCommand(words []string) error { return substorm(words, true) }

// substorm checks names of commands and flags, and the number of arguments where a whole command is meant.
func substorm(words []string, whole bool) error {
	root := cli.Command()
	switch {
	case words[0] == "kubectl":
		words = words[1:]
	case words[0] == "substorm-send":
		root = sender.Command("substorm-send")
	}
	command, args, err := root.Find(words[1:])
	if err != nil {
		return err
	}
	// The arguments after -- are the flags that a service runs with.
	if i := slices.Index(args, "--"); i >= 0 {
		if err := substorm(append([]string{"substorm-send"}, args[i+1:]...), false); err != nil {
			return err
		}
	}
	if slices.Contains(args, "--help") {
		return nil
	}
	if err := command.ParseFlags(args); err != nil {
		if whole || !strings.Contains(err.Error(), "needs an argument") { // prose names flags without what they take
			return err
		}
		return nil
	}
	rest := command.Flags().Args()
	if !whole {
		if len(rest) > 0 && command.HasSubCommands() && !command.Runnable() {
			return fmt.Errorf("%s has no command %s", command.CommandPath(), rest[0])
		}
		return nil
	}
	return command.ValidateArgs(rest)
}

// kubectl checks files, kinds, conditions and fields of ours.
func kubectl(words []string) error {
	if len(words) > 1 && words[1] == "substorm" {
		return substormCommand(words)
	}
	var plain []string // neither flags nor their values
	for i := 1; i < len(words); i++ {
		switch w := words[i]; {
		case w == "-n" || w == "-o" || w == "-l" || w == "-f":
			i++
			if w == "-f" && words[i] != "-" {
				if _, err := os.Stat(filepath.Join(root, words[i])); err != nil {
					return err
				}
			}
		case strings.HasPrefix(w, "--for=condition="):
			name := strings.TrimPrefix(w, "--for=condition=")
			if err := mentions("reference/conditions.md", "| `"+name+"` |"); err != nil {
				return err
			}
		case !strings.HasPrefix(w, "-"):
			plain = append(plain, w)
		}
	}
	verbs := []string{"annotate", "apply", "create", "delete", "describe", "explain", "get", "label", "logs", "patch", "scale", "wait"}
	if len(plain) == 0 || !slices.Contains(verbs, plain[0]) {
		return fmt.Errorf("not one of %v", verbs)
	}
	if len(plain) == 1 || plain[0] == "logs" {
		return nil
	}
	return kinds(plain[1], words)
}

var jsonPath = regexp.MustCompile(`\{\.((?:status|spec)\.[^}]*)\}`)

func kinds(named string, words []string) error {
	ours := []string{"site", "ingestgateway", "feedserver", "instrument", "feed", "feedconsumer", "mirrorpartner"}
	theirs := []string{"apiservice", "clusterrole", "deployment", "event", "hpa", "namespace", "node", "persistentvolumeclaim", "pod", "pvc", "role", "rolebinding", "secret", "service", "statefulset"}
	for _, name := range strings.Split(named, ",") {
		name, _, _ = strings.Cut(name, "/")
		name, _, _ = strings.Cut(name, ".")
		name = strings.TrimSuffix(name, "s")
		switch {
		case slices.Contains(ours, name):
			for _, m := range jsonPath.FindAllStringSubmatch(strings.Join(words, " "), -1) {
				path := regexp.MustCompile(`\[[^]]*\]`).ReplaceAllString(m[1], "[]")
				if err := mentions("reference/kinds/"+name+".md", "| `"+path); err != nil {
					return err
				}
			}
		case !slices.Contains(theirs, name):
			return fmt.Errorf("no kind %s", name)
		}
	}
	return nil
}

// mentions looks for text in a page, as generated pages have names.
func mentions(page, text string) error {
	source, err := os.ReadFile(filepath.FromSlash(page))
	if err == nil && !strings.Contains(string(source), text) {
		err = fmt.Errorf("docs/%s does not have %s", page, text)
	}
	return err
}

// helm checks charts and the values that are set.
func helm(words []string) error {
	if words[1] == "test" { // of a release
		return nil
	}
	if len(words) < 4 || !slices.Contains([]string{"install", "upgrade", "template"}, words[1]) {
		return errors.New("neither install, upgrade, template nor test")
	}
	chart := ""
	for i, w := range words {
		if strings.HasPrefix(w, "charts/") {
			chart = filepath.Base(w)
		}
		if w != "--set" {
			continue
		}
		for _, set := range strings.Split(words[i+1], ",") {
			key, _, _ := strings.Cut(set, "=")
			if err := mentions("reference/values-"+chart+".md", "| `"+key+"` |"); err != nil {
				return err
			}
		}
	}
	_, err := os.Stat(filepath.Join(root, "charts", chart, "Chart.yaml"))
	return err
}

func makeTargets(words []string) error {
	source, err := os.ReadFile(filepath.Join(root, "Makefile"))
	for _, w := range words[1:] {
		if !strings.Contains(w, "=") && !strings.Contains(string(source), "\n"+w+":") {
			return fmt.Errorf("the Makefile has no target %s", w)
		}
	}
	return err
}

func goRun(words []string) error {
	if len(words) < 3 || words[1] != "run" {
		return errors.New("not go run")
	}
	_, err := os.Stat(filepath.Join(root, words[2]))
	return err
}

func docker(words []string) error {
	source, err := os.ReadFile(filepath.Join(root, "Dockerfile"))
	for i, w := range words {
		if w != "--target" {
			continue
		}
		for _, name := range strings.Split(words[i+1], ",") {
			if !strings.Contains(string(source), " AS "+name+"\n") {
				return fmt.Errorf("the Dockerfile has no target %s", name)
			}
		}
	}
	return err
}
