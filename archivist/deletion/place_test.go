// SPDX-License-Identifier: Apache-2.0

package deletion

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// elsewhere are the files outside this package that delete objects, with what they delete:
// the package's comment says why they need not ask.
var elsewhere = map[string]string{
	"ingest-gateway/store/unstorable.go":      "what it wrote into staging to see whether the store takes anything",
	"ingest-gateway/store/multipart.go":       "staging of an object that is done, or was given up",
	"ingest-gateway/receive/http/upload.go":   "pieces of an upload that is done, or that its sender gave up",
	"ingest-gateway/quarantine/quarantine.go": "what unknown senders sent, when its time is over",
	"cli/adopt/adopt.go":                      "what of that is in the archive by now",
	"mirror-jobs/s3/s3.go":                    "copies in a partner's bucket, which is none of ours",
}

// aborting are the files that abort uploads in parts that became no object.
var aborting = map[string]string{
	"ingest-gateway/store/multipart.go": "that of an object which was given up",
	"ingest-gateway/store/entry.go":     "that of an object from the spool, which is tried again",
	"archivist/manifest/sweep.go":       "those of a day ago, as the agreed clock says",
}

// top is the folder of the module.
const top = "../.."

// eachFile calls f for the module's files that are no tests.
func eachFile(t *testing.T, f func(name string, file *ast.File)) {
	t.Helper()
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		relative, _ := filepath.Rel(top, path)
		switch name := filepath.ToSlash(relative); {
		case err != nil:
			return err
		case d.IsDir() && (strings.HasPrefix(d.Name(), ".") && name != "." || name == "bench" || name == "e2e" || name == "hack" || name == "internal/testenv"):
			return filepath.SkipDir // they make archives for tests
		case !strings.HasSuffix(name, ".go"), strings.HasSuffix(name, "_test.go"), strings.Contains(name, "test/"):
			return nil
		default:
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err == nil {
				f(name, file)
			}
			return err
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}

// calls counts by file the calls of methods of an object store, or of what is named so.
func calls(t *testing.T, of []string, methods ...string) map[string]int {
	t.Helper()
	found := map[string]int{}
	eachFile(t, func(name string, file *ast.File) {
		ast.Inspect(file, func(n ast.Node) bool {
			call, _ := n.(*ast.CallExpr)
			if call == nil {
				return true
			}
			method, _ := call.Fun.(*ast.SelectorExpr)
			if method == nil || !slices.Contains(methods, method.Sel.Name) {
				return true
			}
			receiver := ""
			switch x := method.X.(type) {
			case *ast.SelectorExpr:
				receiver = x.Sel.Name
			case *ast.Ident:
				receiver = x.Name
			}
			if slices.ContainsFunc(of, func(s string) bool { return strings.EqualFold(s, receiver) }) {
				found[name]++
			}
			return true
		})
	})
	return found
}

// Only the process that began an upload, and the sweep, abort it.
func TestWhoAbortsUploads(t *testing.T) {
	found := calls(t, []string{"store", "objects", "upload"}, "Abort", "AbortOldUploads")
	for file := range found {
		if aborting[file] == "" && !strings.HasPrefix(file, "internal/objectstore/") {
			t.Errorf("%s aborts uploads: say why in this test", file)
		}
	}
	for file := range aborting {
		if found[file] == 0 {
			t.Errorf("%s aborts nothing any more", file)
		}
	}
}

// Legal hold is declared by the operator, and judged in one place.
func TestOneJudgeOfLegalHold(t *testing.T) {
	judges := map[string]bool{}
	eachFile(t, func(name string, file *ast.File) {
		ast.Inspect(file, func(n ast.Node) bool {
			if x, _ := n.(*ast.SelectorExpr); x != nil && x.Sel.Name == "LegalHold" && !strings.HasPrefix(name, "operator/") {
				judges[name] = true
			}
			return true
		})
	})
	delete(judges, "archivist/deletion/hold.go")
	delete(judges, "internal/registry/resolve.go") // it passes on what the operator declares of a Site to the guests there
	delete(judges, "mirror-jobs/site/day.go")      // it asks the archivist for nothing that would be refused
	for file := range judges {
		t.Errorf("%s judges legal hold: let it ask deletion.Hold", file)
	}
}

// Only the deletion package asks the object store to delete anything, except for the places listed
// here.
func TestOnePlaceDeletes(t *testing.T) {
	found := calls(t, []string{"store", "objects"}, "Delete", "RemoveObject")
	for file := range found {
		if elsewhere[file] == "" && file != "archivist/deletion/deleter.go" {
			t.Errorf("%s deletes objects of the bucket: let it ask package deletion", file)
		}
	}
	for file := range elsewhere {
		if found[file] == 0 {
			t.Errorf("%s deletes nothing any more", file)
		}
	}
	if n := found["archivist/deletion/deleter.go"]; n != 1 {
		t.Errorf("this package deletes in %d places", n)
	}
}
