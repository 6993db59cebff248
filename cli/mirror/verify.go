// SPDX-License-Identifier: Apache-2.0

//go:build linux

package mirror

import (
	"context"
	"fmt"
	"io"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/substorm/substorm/internal/progress"
	"github.com/substorm/substorm/mirror-jobs/folder"
)

func verifyCommand() *cobra.Command {
	var size, quiet bool
	cmd := &cobra.Command{
		Use:   "verify FOLDER",
		Short: "Compare the files of a mirror with its lists",
		Long: `Compares each file that the lists of a mirror name with its size and SHA-256. It
asks nobody. What is wrong is fetched again by "substorm mirror pull --force".`,
		Example: `  substorm mirror verify /data/thule
  substorm mirror verify /data/thule --size`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return verify(cmd.Context(), args[0], !size, quiet, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.Flags().BoolVar(&size, "size", false, "compare sizes alone, without reading the files")
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "show no progress")
	return cmd
}

// verify prints what is wrong.
func verify(ctx context.Context, path string, digests, quiet bool, out, messages io.Writer) (err error) {
	f, err := folder.Open(path)
	if err != nil {
		return fmt.Errorf("folder %s: %w", path, err)
	}
	defer func() {
		if closed := f.Close(); err == nil {
			err = closed
		}
	}()
	shown := progress.Start(messages, quiet, nil)
	defer shown.Stop()
	names, err := f.Instruments()
	if err != nil {
		return err
	}
	if len(names) == 0 {
		return fmt.Errorf("%s is no mirror: it has no lists", path)
	}
	var right, wrong, bytes int64
	for _, name := range names {
		days, err := f.Days(name)
		if err != nil {
			return err
		}
		for _, day := range days {
			lines, err := f.Lines(name, day)
			if err != nil {
				return err
			}
			for i := range lines {
				if err := ctx.Err(); err != nil {
					return err
				}
				if !lines[i].Held {
					continue
				}
				if err := f.Verify(name, &lines[i].Entry, digests); err != nil {
					wrong++
					_, _ = fmt.Fprintf(shown.Above(out), "%s/%s: %v\n", name, lines[i].Path, err)
					continue
				}
				right++
				bytes += lines[i].Size
				shown.Set(right, 0, "%s objects, %s: %s %s", humanize.Comma(right), humanize.IBytes(uint64(bytes)), name, day)
			}
		}
	}
	shown.Stop()
	_, _ = fmt.Fprintf(out, "%s objects, %s, are what the lists say\n", humanize.Comma(right), humanize.IBytes(uint64(bytes)))
	if wrong > 0 {
		return fmt.Errorf("%d objects of %s are not what the lists say: fetch them again by substorm mirror pull --force", wrong, path)
	}
	return nil
}
