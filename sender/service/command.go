// SPDX-License-Identifier: Apache-2.0

package service

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"github.com/spf13/cobra"

	"github.com/substorm/substorm/internal/usage"
)

// Sender is what a command line of the sender says.
type Sender struct {
	Queue string
	Watch []string
	Move  bool
	// Secrets are files that few may read.
	Secrets []string
}

// Command returns `service`, a subcommand of the sender's. Parse reads a command
// line of the sender's and finds what is wrong with it; prefix are the words
// between the program and these arguments, as in "send".
func Command(prefix []string, parse func(args []string) (Sender, error)) *cobra.Command {
	c := &cobra.Command{
		Use:   "service",
		Short: "Have the system run the sender: systemd, or the services of Windows",
		Long: `Have the system start the sender with the machine and start it again whenever it
ends. Behind -- stand the sender's own flags; --watch and --queue must be among
them. On Linux this is a unit of systemd, on Windows a service.`,
		Example: printExample + "\n" + installExample + "\n" + uninstallExample,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	c.AddCommand(installCommand(prefix, parse), printCommand(prefix, parse), uninstallCommand())
	return c
}

const (
	printExample     = "  substorm send service print -- --to node1:30103,node2:30103 --framing length-prefixed --watch /data/spectra --queue /var/lib/substorm-send"
	installExample   = "  substorm send service install --name substorm-send-camera --user camera -- --to gateway.example:30101 --take move --watch /data/frames --queue /data/queue"
	uninstallExample = "  substorm send service uninstall --name substorm-send-camera"
)

// defaultName of the unit or service.
const defaultName = "substorm-send"

func specFlags(cmd *cobra.Command, s *Spec) {
	cmd.Flags().StringVar(&s.Name, "name", defaultName, "name of the service, for more than one on a machine")
	who := "who runs it; without it systemd makes a user of its own, for a queue below /var/lib and files that everybody may read; the token and the key it gets from systemd (LoadCredential=)"
	if runtime.GOOS == "windows" {
		who = `account that runs it, as "NT AUTHORITY\LocalService" (no account with a password); without it the service has one of its own, NT SERVICE\<name>, which gets access to ` +
			`the queue, the watched folders, the token and the key`
	}
	cmd.Flags().StringVar(&s.User, "user", "", who)
}

// complete reads the sender's flags and makes their paths absolute.
func (s *Spec) complete(prefix, args []string, parse func([]string) (Sender, error)) error {
	sender, err := parse(args)
	if err != nil {
		return err
	}
	if s.Program, err = os.Executable(); err != nil {
		return err
	}
	s.Args = append(append([]string{}, prefix...), args...)
	s.Queue, s.Watch, s.Move, s.Secrets = sender.Queue, sender.Watch, sender.Move, sender.Secrets
	for _, path := range slices.Concat([]string{s.Queue}, s.Watch, s.Secrets) {
		if path != "" && !filepath.IsAbs(path) {
			return usage.Errorf("a service runs in another folder: give %s with its full path", path)
		}
	}
	return nil
}

func printCommand(prefix []string, parse func([]string) (Sender, error)) *cobra.Command {
	var s Spec
	c := &cobra.Command{
		Use:     "print [--name NAME] -- FLAGS...",
		Short:   "Print the unit file of systemd, and change nothing",
		Example: printExample,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := s.complete(prefix, args, parse); err != nil {
				return err
			}
			unit, err := s.Unit()
			if err != nil {
				return err
			}
			_, err = fmt.Fprint(cmd.OutOrStdout(), unit)
			return err
		},
	}
	specFlags(c, &s)
	return c
}

func installCommand(prefix []string, parse func([]string) (Sender, error)) *cobra.Command {
	var s Spec
	var manager manager
	c := &cobra.Command{
		Use:     "install [--name NAME] -- FLAGS...",
		Short:   "Install the sender as a service and start it; again to change its flags",
		Example: installExample,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := s.complete(prefix, args, parse); err != nil {
				return err
			}
			return manager.install(cmd.Context(), s, cmd.OutOrStdout())
		},
	}
	specFlags(c, &s)
	manager.flags(c)
	return c
}

func uninstallCommand() *cobra.Command {
	var s Spec
	var manager manager
	c := &cobra.Command{
		Use:     "uninstall [--name NAME]",
		Short:   "Stop and remove the service; its queue stays",
		Example: uninstallExample,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !unitName.MatchString(s.Name) {
				return usage.Errorf("--name %q is not the name of a service", s.Name)
			}
			return manager.uninstall(cmd.Context(), s.Name, cmd.OutOrStdout())
		},
	}
	c.Flags().StringVar(&s.Name, "name", defaultName, "name of the service")
	manager.flags(c)
	return c
}
