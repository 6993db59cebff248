// SPDX-License-Identifier: Apache-2.0

// Command parts builds the real servers and tools that tests, demo and cluster run, each once, into a cache outside
// the checkout.
//
//	go run ./hack/parts [NAME...]     build these (default: all that most people need) and print their paths
//	go run ./hack/parts path NAME     the same for one, printing nothing but its path
//	go run ./hack/parts prune         remove what other versions of this checkout left in the cache
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/substorm/substorm/hack/parts/tool"
	"github.com/substorm/substorm/hack/progress"
)

func main() { progress.Main("parts", run) }

func run(ctx context.Context, args []string) error {
	p := progress.New(os.Stderr)
	switch {
	case len(args) > 0 && args[0] == "prune":
		removed, err := tool.Prune()
		for _, dir := range removed {
			fmt.Println("removed", dir)
		}
		return err
	case len(args) > 0 && args[0] == "path":
		if len(args) != 2 {
			return fmt.Errorf("path takes one name: go run ./hack/parts path minio")
		}
		path, err := tool.Build(ctx, p, args[1])
		if err == nil {
			fmt.Println(path)
		}
		return err
	}
	names := args
	if len(names) == 0 {
		for _, t := range tool.All() {
			if !t.OnDemand {
				names = append(names, t.Name)
			}
		}
	}
	for _, name := range names { // a misspelled name is an error before minutes are spent on the others
		if _, err := tool.Find(name); err != nil {
			return err
		}
	}
	for _, name := range names {
		path, err := tool.Build(ctx, p, name)
		if err != nil {
			return err
		}
		fmt.Printf("%-24s %s\n", name, path)
	}
	return nil
}
