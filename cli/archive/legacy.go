// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/tree"
	"github.com/substorm/substorm/internal/wire"
)

// printLegacy lists the legacy tree within the selection, day by day.
func (l *listing) printLegacy(ctx context.Context, store objectstore.Store, site string, out, notes io.Writer) error {
	days := map[wire.Day][]string{}
	for list, err := range l.lists(ctx, store, site) {
		if err != nil {
			return err
		}
		days[list.day] = append(days[list.day], list.instrument)
	}
	buffered := bufio.NewWriter(out)
	folders := 0
	for _, day := range slices.Sorted(maps.Keys(days)) {
		found, err := tree.Folders(ctx, store, site, day, days[day])
		if err != nil {
			return errors.Join(fmt.Errorf("the list is not complete: %w", err), buffered.Flush())
		}
		for _, f := range found {
			if folders == 0 {
				fmt.Fprintf(buffered, "%-8s  %-8s  %7s  %12s  %-20s  %s\n", "FIRST", "LAST", "OBJECTS", "BYTES", "INSTRUMENTS", "PATH")
			}
			folders++
			fmt.Fprintf(buffered, "%-8s  %-8s  %7d  %12d  %-20s  %s\n", f.First.UTC().Format("15:04:05"), f.Last.UTC().Format("15:04:05"),
				f.Objects, f.Bytes, strings.Join(f.Instruments, ","), f.Path())
		}
	}
	if err := buffered.Flush(); err != nil {
		return err
	}
	if folders == 0 {
		return nothing(ctx, store, site, notes)
	}
	return nil
}
