// SPDX-License-Identifier: Apache-2.0

package reference

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

// Conditions describes the conditions of our kinds and their reasons: the constants in the Go files of api, and where
// the golden files of the planner in testdata have them.
func Conditions(api, testdata string) (string, error) {
	c := conditions{says: map[string]string{}, kinds: map[string]map[string]bool{}, on: map[string]map[string]bool{}}
	if err := c.constants(api); err != nil {
		return "", err
	}
	if err := c.golden(testdata); err != nil {
		return "", err
	}
	out := &strings.Builder{}
	out.WriteString("# Conditions\n\n`kubectl get KIND NAME -o yaml` shows them under `status.conditions`; `kubectl wait --for=condition=Ready` waits for one. " +
		"A condition's `message` names the object and the next step.\n\n## Conditions of our kinds\n\n")
	out.WriteString(head("Condition", "Kinds", "Description"))
	for _, name := range c.sorted("Condition") {
		out.WriteString(row(code(value(name)), join(c.kinds[value(name)]), cell(c.says[name])))
	}
	out.WriteString("\n## Reasons\n\nKinds and conditions are those of the planner's golden files; where none has a reason, the second column is empty.\n\n")
	out.WriteString(head("Reason", "Of the conditions", "Description"))
	for _, name := range c.sorted("Reason") {
		out.WriteString(row(code(value(name)), join(c.on[value(name)]), cell(c.says[name])))
	}
	return out.String(), nil
}

// conditions are constants with their comments, and where they were seen.
type conditions struct {
	says      map[string]string // by prefix of the constant and value, as in Reason/Conflict
	kinds, on map[string]map[string]bool
}

func value(name string) string { _, v, _ := strings.Cut(name, "/"); return v }

func join(set map[string]bool) string { return strings.Join(slices.Sorted(maps.Keys(set)), ", ") }

func (c conditions) sorted(prefix string) (names []string) {
	for _, name := range slices.Sorted(maps.Keys(c.says)) {
		if strings.HasPrefix(name, prefix+"/") {
			names = append(names, name)
		}
	}
	return names
}

func (c conditions) constants(dir string) error {
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return err
	}
	for _, path := range paths {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		for _, decl := range file.Decls {
			group, ok := decl.(*ast.GenDecl)
			if !ok || group.Tok != token.CONST {
				continue
			}
			for _, spec := range group.Specs {
				spec := spec.(*ast.ValueSpec)
				comment := spec.Doc.Text()
				if !group.Lparen.IsValid() {
					comment = group.Doc.Text()
				}
				if err := c.constant(spec, comment); err != nil {
					return fmt.Errorf("%s: %w", path, err)
				}
			}
		}
	}
	return nil
}

func (c conditions) constant(spec *ast.ValueSpec, comment string) error {
	for i, name := range spec.Names {
		for _, prefix := range []string{"Condition", "Reason"} {
			if !strings.HasPrefix(name.Name, prefix) {
				continue
			}
			literal, ok := spec.Values[i].(*ast.BasicLit)
			if !ok {
				continue
			}
			text, err := strconv.Unquote(literal.Value)
			if err != nil {
				return err
			}
			if comment == "" {
				return fmt.Errorf("constant %s has no comment, which is what the page of conditions says of it: write one above it", name.Name)
			}
			comment = strings.TrimPrefix(strings.TrimPrefix(comment, name.Name), ":")
			c.says[prefix+"/"+text] = capital(strings.TrimSpace(comment))
		}
	}
	return nil
}

func capital(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// Causes describes why data is refused, cut off or dropped: the constants of type Cause in a Go file, each with the comment beside it.
func Causes(path string) (string, error) {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
	if err != nil {
		return "", err
	}
	var rows []string
	for _, decl := range file.Decls {
		group, ok := decl.(*ast.GenDecl)
		if !ok || group.Tok != token.CONST {
			continue
		}
		for _, spec := range group.Specs {
			spec := spec.(*ast.ValueSpec)
			kind, ok := spec.Type.(*ast.Ident)
			if !ok || kind.Name != "Cause" {
				continue
			}
			says := strings.TrimSpace(spec.Comment.Text())
			if says == "" {
				return "", fmt.Errorf("%s: constant %s has no comment, which is what the page of causes says of it: write one beside it", path, spec.Names[0].Name)
			}
			text, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				return "", err
			}
			rows = append(rows, row(code(text), cell(capital(says))))
		}
	}
	if len(rows) == 0 {
		return "", fmt.Errorf("%s has no constants of type Cause", path)
	}
	slices.Sort(rows)
	return "# Causes\n\nWhy data is refused, cut off or dropped: in answers to senders, the ledger (`substorm archive ledger`), logs and metrics.\n\n" +
		head("Cause", "Description") + strings.Join(rows, ""), nil
}

// kindsOf are the keys of golden files that hold statuses of a kind.
var kindsOf = map[string]string{"sites": "Site", "ingestGateways": "IngestGateway", "feedServers": "FeedServer", "instruments": "Instrument", "feeds": "Feed", "feedConsumers": "FeedConsumer",
	"mirrorPartners": "MirrorPartner"}

func (c conditions) golden(dir string) error {
	paths, err := filepath.Glob(filepath.Join(dir, "*.out.yaml"))
	if err != nil || len(paths) == 0 {
		return fmt.Errorf("no golden files in %s: %w", dir, err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		var all map[string]any
		if err := yaml.Unmarshal(text, &all); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		for key, kind := range kindsOf {
			c.see(kind, all[key])
		}
	}
	return nil
}

// see notes the conditions below a value.
func (c conditions) see(kind string, in any) {
	switch in := in.(type) {
	case []any:
		for _, one := range in {
			c.see(kind, one)
		}
	case map[string]any:
		condition, _ := in["type"].(string)
		reason, _ := in["reason"].(string)
		if condition != "" && reason != "" && in["status"] != nil {
			note(c.kinds, condition, kind)
			note(c.on, reason, condition)
			return
		}
		for _, one := range in {
			c.see(kind, one)
		}
	}
}

func note(sets map[string]map[string]bool, name, member string) {
	if sets[name] == nil {
		sets[name] = map[string]bool{}
	}
	sets[name][member] = true
}
