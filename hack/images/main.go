// SPDX-License-Identifier: Apache-2.0

// Command images assembles the container images of this checkout, without an engine.
//
//	go run ./hack/images [NAME...]    make these (default: all that the charts use by default) and print name, ID and tar
//
// VERSION is the tag and what the programs answer to --version; dev by default.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/substorm/substorm/hack/images/image"
	"github.com/substorm/substorm/hack/progress"
)

func main() { progress.Main("images", run) }

func run(ctx context.Context, names []string) error {
	if len(names) == 0 {
		names = image.Names()
	}
	for _, name := range names {
		if _, err := image.Find(name); err != nil {
			return err
		}
	}
	p := progress.New(os.Stderr)
	for _, name := range names {
		built, err := image.Build(ctx, p, name, image.Tag())
		if err != nil {
			return err
		}
		fmt.Printf("%-32s %s  %s\n", built.Ref, built.Digest, built.Path)
	}
	return nil
}
