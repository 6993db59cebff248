// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"
)

const root = ".."

// pages are all Markdown files of the project, below its root.
func pages(t *testing.T) (paths []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != root && strings.HasPrefix(d.Name(), ".") {
			return filepath.SkipDir
		}
		if filepath.Ext(path) == ".md" && d.Type().IsRegular() { // a link is a page elsewhere
			paths = append(paths, filepath.Clean(path))
		}
		return nil
	})
	if err != nil || len(paths) == 0 {
		t.Fatalf("no pages: %v", err)
	}
	return paths
}

// parse reads a page.
func parse(t *testing.T, path string) (ast.Node, []byte) {
	t.Helper()
	source, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	markdown := goldmark.New(goldmark.WithExtensions(extension.GFM), goldmark.WithParserOptions(parser.WithAutoHeadingID()))
	return markdown.Parser().Parse(text.NewReader(source)), source
}

// each calls a function with each node of a page.
func each(t *testing.T, page ast.Node, do func(ast.Node)) {
	t.Helper()
	err := ast.Walk(page, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if entering {
			do(n)
		}
		return ast.WalkContinue, nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestLinks: every relative link of every Markdown file leads to a file, or to a heading of one.
func TestLinks(t *testing.T) {
	anchors := map[string][]string{}
	for _, path := range pages(t) {
		page, _ := parse(t, path)
		each(t, page, func(n ast.Node) {
			if heading, ok := n.(*ast.Heading); ok {
				id, _ := heading.AttributeString("id")
				anchors[path] = append(anchors[path], string(id.([]byte)))
			}
		})
	}
	for _, path := range pages(t) {
		page, _ := parse(t, path)
		each(t, page, func(n ast.Node) {
			var target string
			switch n := n.(type) {
			case *ast.Link:
				target = string(n.Destination)
			case *ast.Image:
				target = string(n.Destination)
			default:
				return
			}
			to, err := url.Parse(target)
			if err != nil || to.IsAbs() {
				return
			}
			at := path
			if to.Path != "" {
				at = filepath.Join(filepath.Dir(path), to.Path)
			}
			if _, err := os.Stat(at); err != nil {
				t.Errorf("%s links to %s: %v", path, target, err)
			} else if to.Fragment != "" && !slices.Contains(anchors[at], to.Fragment) {
				t.Errorf("%s links to %s: %s has no such heading", path, target, at)
			}
		})
	}
}

var mention = regexp.MustCompile(`\bdocs/[a-z-]+(/[a-z-]+)?\.md\b`)

// TestMentions: every page of docs that code, messages, charts and scripts name exists.
func TestMentions(t *testing.T) {
	extensions := []string{".go", ".yaml", ".tpl", ".txt", ".sh", ".md"}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && path != root && strings.HasPrefix(d.Name(), ".") {
			return filepath.SkipDir
		}
		if d.IsDir() || !slices.Contains(extensions, filepath.Ext(path)) {
			return nil
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, page := range mention.FindAllString(string(source), -1) {
			if _, err := os.Stat(filepath.Join(root, page)); err != nil {
				t.Errorf("%s names %s: %v", path, page, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
