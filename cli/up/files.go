// SPDX-License-Identifier: Apache-2.0

//go:build linux

package up

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/substorm/substorm/cli/up/manifests"
	"github.com/substorm/substorm/operator/plan"
)

// This file applies what the files declare, at the start and after each change of them.

// files are what a start has read: the objects that they declare, or what is wrong with them.
type files struct {
	declared []*manifests.Object
	err      error
}

func readFiles(cfg Config) files {
	declared, err := Declared(cfg.Manifests, cfg.Namespace)
	if err != nil {
		return files{err: err}
	}
	return files{declared: declared}
}

// natsFolder is where the NATS server keeps its streams, in the data folder.
const natsFolder = "nats"

// hasRun says whether a Site has run in a data folder: its NATS server starts once all that the files declare is applied.
func hasRun(dataDir string) bool {
	_, err := os.Stat(filepath.Join(dataDir, natsFolder))
	return err == nil
}

// applyAtStart applies what the files declare. A mistake in them ends a first start. At a later one, what was applied before runs all the
// same: the files may have been changed long before the machine restarted, and its instruments send. Errors: the files are those of another
// Site; what is wrong with them at a first start.
func (s *site) applyAtStart(ctx context.Context, files files) error {
	before, err := manifests.SiteBefore(ctx, s.client)
	if err != nil {
		return err
	}
	isFirst := before == nil || !hasRun(s.folder.path)
	if files.err != nil {
		if isFirst {
			return files.err
		}
		s.code, s.namespace = codeOf([]*manifests.Object{{Unstructured: before}}), before.GetNamespace()
		s.refuseFiles(files.err)
		return nil
	}
	s.code, s.namespace = codeOf(files.declared), siteOf(files.declared).GetNamespace()
	if err := s.sameSite(before); err != nil {
		return err
	}
	_, err = manifests.Apply(ctx, s.client, files.declared, s.log)
	if err == nil || isFirst || ctx.Err() != nil {
		return err
	}
	s.tellApplied(err)
	return nil
}

// sameSite errs where the data folder is of a Site with another code, whose resources would be removed for those of this one, or where
// the Site was in another namespace.
func (s *site) sameSite(before *unstructured.Unstructured) error {
	if before == nil || s.code == "" {
		return nil
	}
	stored := codeOf([]*manifests.Object{{Unstructured: before}})
	if stored == s.code {
		return s.sameNamespace(before.GetNamespace(), s.namespace)
	}
	declares := "the files declare"
	if len(s.cfg.Manifests) == 0 {
		declares = "without -f there is"
	}
	return fmt.Errorf("data folder %s belongs to the Site with code %q, and %s one with code %q: name the files of that Site with -f, or another folder with --data-dir",
		s.folder.path, stored, declares, s.code)
}

// sameNamespace errs where a Site would move to another namespace: the keys of its NATS server are Secrets of the old one, and with new keys
// what the streams hold is not found.
func (s *site) sameNamespace(before, declared string) error {
	if before == declared {
		return nil
	}
	return fmt.Errorf("the Site of data folder %s is in namespace %q, and it would now be in namespace %q: "+
		"start with --namespace %s if the files name no namespace, else name %s in them, or name another folder with --data-dir",
		s.folder.path, before, declared, before, before)
}

// follow applies the files again after each change of them.
func (s *site) follow(ctx context.Context) error {
	if len(s.cfg.Manifests) == 0 {
		<-ctx.Done()
		return nil
	}
	return manifests.Watch(ctx, s.cfg.Manifests, s.seen, func() {
		declared, err := manifests.Up.Load(s.cfg.Manifests, s.cfg.Namespace)
		if found := siteOf(declared); err == nil && found == nil {
			err = errors.New("the files declare no Site any more: what runs here needs one")
		} else if err == nil && codeOf(declared) != s.code {
			err = fmt.Errorf("the files declare a Site with code %q, and this data folder belongs to %q: start another substorm up with a data folder of its own", codeOf(declared), s.code)
		}
		if err == nil {
			err = s.sameNamespace(s.namespace, siteOf(declared).GetNamespace())
		}
		if err != nil {
			s.refuseFiles(err)
			return
		}
		changed, err := manifests.Apply(ctx, s.client, declared, s.log)
		if ctx.Err() != nil {
			return
		}
		s.tellApplied(err)
		s.tellChange(ctx, changed)
	})
}

// refuseFiles says that nothing of the files is applied, and why.
func (s *site) refuseFiles(err error) {
	s.log.Error("the files are not applied; the state that was applied before stays in force", "error", err)
	s.tellUnapplied(&plan.Manifests{Problems: manifests.Problems(err), Whole: true})
}

// tellApplied reports that all of the files is applied, or what is not; err is the error of manifests.Apply.
func (s *site) tellApplied(err error) {
	if err != nil {
		s.log.Error("some of what the files declare is not applied", "error", err)
	}
	s.tellUnapplied(&plan.Manifests{Problems: manifests.Problems(err)})
}
