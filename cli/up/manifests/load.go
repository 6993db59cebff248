// SPDX-License-Identifier: Apache-2.0

// Package manifests reads the files that say what a Site is, and applies them as kubectl would.
package manifests

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	yaml4 "go.yaml.in/yaml/v4"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/substorm/substorm/operator/api/v1alpha1"
)

// Object is an object that a file declares.
type Object struct {
	*unstructured.Unstructured
	// File and Line are where its document begins.
	File string
	Line int
	// node is the document's, nil for an element of a List.
	node *yaml4.Node
}

// String names the object and where it is declared.
func (o *Object) String() string {
	return fmt.Sprintf("%s:%d: %s %q", o.File, o.Line, o.GetKind(), o.GetName())
}

// extensions of files that are read in a folder, as kubectl apply -f reads them.
var extensions = []string{".yaml", ".yml", ".json"}

// maxBytes bounds what one command reads: 10,000 Instruments are about 4 MB, and what is read takes 35 times as much memory as manifests, and 90
// times as much as a map of short values.
const maxBytes = 16 << 20

// Command is a command that reads manifests, in the words of its errors.
type Command struct {
	// Name of the command, and Flag that says what it reads.
	Name, Flag string
	// Verb is what it does with the kinds that it takes, and Takes says which these are.
	Verb, Takes string
	// One says of how many Sites it is, and Second what to do about a second one; empty: of any number.
	One, Second string
	// PassOver says that it passes over objects of other groups, where others refuse what they do not take.
	PassOver bool
}

// Up is `substorm up`.
var Up = &Command{
	Name: "substorm up", Flag: "-f", Verb: "run", Takes: fmt.Sprintf("it runs the kinds of %s and reads Secrets and Namespaces", v1alpha1.GroupVersion),
	One: "runs one Site", Second: "start another substorm up with a data folder of its own for the second",
}

// Load reads files, and the files of folders (not of folders in them), in the order of their names. Objects without a namespace are of
// namespace. The error has a line for each thing that is wrong, with file, line and column.
func (c *Command) Load(paths []string, namespace string) ([]*Object, error) {
	files, err := Files(paths)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w: name a file or a folder of manifests that exists", c.Flag, err)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Flag, err)
	}
	var all []*Object
	var errs []error
	for left := int64(maxBytes); len(files) > 0; files = files[1:] {
		file := files[0]
		text, err := read(file, left)
		if errors.Is(err, errTooLarge) {
			return nil, fmt.Errorf("%s: %w than the %d MiB that %s reads: name only manifests with %s", file, err, maxBytes>>20, c.Name, c.Flag)
		}
		left -= int64(len(text))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		objects, err := c.Parse(file, text, namespace)
		all, errs = append(all, objects...), append(errs, err)
	}
	errs = append(errs, c.contradictions(all))
	return all, errors.Join(errs...)
}

var errTooLarge = errors.New("this is more")

// read reads a file of at most so many bytes.
func read(file string, most int64) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	_ = f.Close() // it was only read
	if int64(len(text)) > most {
		return nil, errTooLarge
	}
	return text, err
}

// Files are those that Load reads.
func Files(paths []string) ([]string, error) {
	var files []string
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		if !info.IsDir() {
			files = append(files, path)
			continue
		}
		entries, err := os.ReadDir(path)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if isManifest(e) {
				files = append(files, filepath.Join(path, e.Name()))
			}
		}
	}
	return files, nil
}

func isManifest(e fs.DirEntry) bool {
	return !e.IsDir() && !strings.HasPrefix(e.Name(), ".") && slices.Contains(extensions, filepath.Ext(e.Name()))
}

// Parse reads the documents of a file.
func (c *Command) Parse(file string, text []byte, namespace string) (all []*Object, failed error) {
	if bytes.IndexByte(text, 0) >= 0 || !utf8.Valid(text) {
		return nil, fmt.Errorf("%s: this is not text: name manifests in YAML or JSON with %s, not compressed", file, c.Flag)
	}
	documents := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	line := 1
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return all, failed
		}
		if err != nil {
			return all, errors.Join(failed, fmt.Errorf("%s: %w", file, err))
		}
		begins := line
		line += bytes.Count(document, []byte("\n")) + 1 // the line that separates documents is in none
		objects, err := c.decode(file, begins, document, namespace)
		all, failed = append(all, objects...), errors.Join(failed, err)
	}
}

// decode reads a document that begins at a line: an object, or a List of them; nothing where it is empty.
func (c *Command) decode(file string, line int, document []byte, namespace string) ([]*Object, error) {
	var node yaml4.Node
	if err := yaml4.Unmarshal(document, &node); err != nil {
		return nil, positioned(file, line, err)
	}
	if len(node.Content) == 0 || node.Content[0].Tag == "!!null" {
		return nil, nil
	}
	root := node.Content[0]
	at := fmt.Sprintf("%s:%d:%d", file, line+root.Line-1, root.Column)
	if root.Kind != yaml4.MappingNode {
		return nil, fmt.Errorf("%s: this is not an object: a manifest begins with apiVersion and kind", at)
	}
	json, err := sigsyaml.YAMLToJSONStrict(document)
	if err != nil {
		return nil, fmt.Errorf("%s: %s", at, strings.TrimPrefix(err.Error(), "error converting YAML to JSON: "))
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(json); err != nil {
		return nil, fmt.Errorf("%s: this is not an object: a manifest begins with apiVersion and kind", at)
	}
	o := &Object{u, file, line + root.Line - 1, root}
	if !u.IsList() {
		return c.checked(o, at, namespace)
	}
	var all []*Object
	err = u.EachListItem(func(item runtime.Object) error {
		one, err := c.checked(&Object{item.(*unstructured.Unstructured), file, o.Line, nil}, at, namespace)
		all = append(all, one...)
		return err
	})
	return all, err
}

// positioned says where a document is no YAML.
func positioned(file string, line int, err error) error {
	var e *yaml4.LoadError
	if errors.As(err, &e) {
		return fmt.Errorf("%s:%d:%d: %s", file, line+e.Mark.Line-1, e.Mark.Column, e.Message)
	}
	return fmt.Errorf("%s:%d: %w", file, line, err)
}

// checked returns the object where it is of a kind that the command takes.
func (c *Command) checked(o *Object, at, namespace string) ([]*Object, error) {
	kind := o.GroupVersionKind()
	if c.PassOver && kind.Group != v1alpha1.GroupVersion.Group {
		return nil, nil
	}
	switch {
	case o.GetName() == "":
		return nil, fmt.Errorf("%s: %s has no metadata.name", at, kind.Kind)
	case kind.GroupVersion() == v1alpha1.GroupVersion, kind.Group == "" && kind.Kind == "Secret":
		if o.GetNamespace() == "" {
			o.SetNamespace(namespace)
		}
		if why := o.notText(); why != "" {
			return nil, fmt.Errorf("%s: %s %q: %s", at, kind.Kind, o.GetName(), why)
		}
	case kind.Group == "" && kind.Kind == "Namespace":
	default:
		return nil, fmt.Errorf("%s: %s %q: %s does not %s kind %s of %s: %s; take it out of what %s names",
			at, kind.Kind, o.GetName(), c.Name, c.Verb, kind.Kind, o.GetAPIVersion(), c.Takes, c.Flag)
	}
	return []*Object{o}, nil
}

// notText says what of a Secret has a value that is no text, and what to write. The API server's own error would show the value, and so would the log.
func (o *Object) notText() string {
	if o.GetKind() != "Secret" {
		return ""
	}
	for _, part := range []string{"data", "stringData"} {
		values, ok := o.Object[part].(map[string]any)
		if !ok && o.Object[part] != nil {
			return part + ` has no names: write ` + part + `: {NAME: "VALUE"}`
		}
		for _, key := range slices.Sorted(maps.Keys(values)) {
			if _, ok = values[key].(string); !ok && values[key] != nil {
				return fmt.Sprintf("the value of %s.%s is not text: put it in quotes", part, key)
			}
		}
	}
	return ""
}

// contradictions says which objects are declared twice, and whether there is more than one Site.
func (c *Command) contradictions(all []*Object) error {
	var errs []error
	var site *Object
	first := map[string]*Object{}
	for _, o := range all {
		key := strings.Join([]string{o.GroupVersionKind().String(), o.GetNamespace(), o.GetName()}, "/")
		if other := first[key]; other != nil {
			errs = append(errs, fmt.Errorf("%s: is declared at %s:%d, too: remove one of the two", o, other.File, other.Line))
			continue
		}
		first[key] = o
		if o.GetKind() != "Site" {
			continue
		}
		if site != nil && c.One != "" {
			errs = append(errs, fmt.Errorf("%s: %s %s, and %s:%d declares %q: %s",
				o, c.Name, c.One, site.File, site.Line, site.GetName(), c.Second))
		}
		site = o
	}
	return errors.Join(errs...)
}
