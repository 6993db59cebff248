// SPDX-License-Identifier: Apache-2.0

//go:build linux

package mirror

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/substorm/substorm/internal/progress"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/folder"
	"github.com/substorm/substorm/mirror-jobs/plan"
)

func verifyCommand() *cobra.Command {
	var size, quiet bool
	cmd := &cobra.Command{
		Use:   "verify FOLDER",
		Short: "Compare the files of a mirror with its lists",
		Long: `Compares each file that the lists of a mirror name with its size and SHA-256, and
finds days whose list is lost. It asks nobody. What is wrong is fetched again by "substorm mirror pull --force".`,
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
	if len(names) == 0 && len(f.State().Instruments) == 0 {
		return fmt.Errorf("%s is not a mirror: it has no lists", path)
	}
	v := verification{Folder: f, digests: digests, out: shown.Above(out), shown: shown}
	forgotten, err := f.Forgotten()
	if err != nil {
		return err
	}
	for _, name := range forgotten {
		v.damaged++
		_, _ = fmt.Fprintf(v.out, ".substorm/%s: days.json is lost: which days have objects here is not known\n", name)
	}
	for _, name := range names {
		if err := v.instrument(ctx, name); err != nil {
			return err
		}
	}
	shown.Stop()
	_, _ = fmt.Fprintf(out, "%s objects, %s, are what the lists say\n", humanize.Comma(v.right), humanize.IBytes(uint64(v.bytes)))
	return v.verdict(path)
}

// verification is what was found in a mirror so far.
type verification struct {
	*folder.Folder
	digests bool
	out     io.Writer
	shown   *progress.Progress

	right, wrong, bytes int64
	// damaged lists, and lost ones.
	damaged int64
}

// instrument compares the files of one, and prints what is wrong.
func (v *verification) instrument(ctx context.Context, name string) error {
	known, err := v.Known(name)
	if err != nil {
		return err
	}
	lost, err := v.Lost(name, known)
	if err != nil {
		return err
	}
	for _, day := range lost {
		v.damaged++
		_, _ = fmt.Fprintf(v.out, ".substorm/%s: the list of %s is lost, and %s objects of that day should be here\n", name, day, humanize.Comma(int64(known.Days[day].Objects)))
	}
	days, err := v.Days(name)
	if err != nil {
		return err
	}
	for _, day := range days {
		lines, err := v.Lines(name, day)
		if errors.Is(err, folder.ErrUnreadable) {
			v.damaged++
			_, _ = fmt.Fprintln(v.out, err)
			continue
		}
		if err != nil {
			return err
		}
		if err := v.day(ctx, name, day, lines); err != nil {
			return err
		}
	}
	return nil
}

// day compares the files of a list.
func (v *verification) day(ctx context.Context, name string, day wire.Day, lines []plan.Line) error {
	for i := range lines {
		if err := ctx.Err(); err != nil {
			return err
		}
		if !lines[i].Held {
			continue
		}
		if err := v.Verify(name, &lines[i].Entry, v.digests); err != nil {
			v.wrong++
			_, _ = fmt.Fprintf(v.out, "%s/%s: %v\n", name, lines[i].Path, err)
			continue
		}
		v.right++
		v.bytes += lines[i].Size
		v.shown.Set(v.right, 0, "%s objects, %s: %s %s", humanize.Comma(v.right), humanize.IBytes(uint64(v.bytes)), name, day)
	}
	return nil
}

// verdict is an error where anything is wrong.
func (v *verification) verdict(path string) error {
	const again = "fetch them again by substorm mirror pull --force"
	switch {
	case v.damaged > 0:
		return fmt.Errorf("%d lists of %s are lost or damaged, and %d objects are not what the lists say: %s", v.damaged, path, v.wrong, again)
	case v.wrong > 0:
		return fmt.Errorf("%d objects of %s are not what the lists say: %s", v.wrong, path, again)
	}
	return nil
}
