// SPDX-License-Identifier: Apache-2.0

// Package resources has kubectl's own get, apply and delete, for computers without kubectl.
package resources

import (
	"bytes"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/kubectl/pkg/cmd/apply"
	"k8s.io/kubectl/pkg/cmd/delete"
	"k8s.io/kubectl/pkg/cmd/get"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"

	"github.com/substorm/substorm/cli/kube"
	_ "github.com/substorm/substorm/cli/resources/english" // before kubectl's commands
	"github.com/substorm/substorm/internal/usage"
)

// Commands returns `substorm get`, `apply` and `delete`.
func Commands() []*cobra.Command {
	return []*cobra.Command{getCommand(), applyCommand(), deleteCommand()}
}

func getCommand() *cobra.Command {
	return command(func(f cmdutil.Factory, streams genericiooptions.IOStreams) *cobra.Command {
		c := get.NewCmdGet("substorm", f, streams)
		c.Use, c.DisableFlagsInUseLine = "get TYPE [NAME]...", false
		c.Short = "List resources as kubectl get does"
		c.Long = `Lists resources of a cluster, or of the Site that substorm up runs on this computer, as kubectl get does: with the same columns and formats.`
		c.Example = `  # The Instruments, and whether their data flows:
  substorm get instruments

  # One Instrument, with its status:
  substorm get instrument allsky-camera -o yaml

  # All of Substorm's resources, and what changes in them:
  substorm get substorm
  substorm get instruments -w`
		c.Args = func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 || slices.ContainsFunc([]string{"filename", "kustomize", "raw"}, cmd.Flags().Changed) {
				return nil
			}
			return usage.Errorf("TYPE is missing (substorm get substorm lists all resources of Substorm)") // kubectl's own words name a command that is not here
		}
		return c
	})
}

func applyCommand() *cobra.Command {
	return command(func(f cmdutil.Factory, streams genericiooptions.IOStreams) *cobra.Command {
		streams.ErrOut = &withoutHints{w: streams.ErrOut}
		flags := apply.NewApplyFlags(streams)
		c := &cobra.Command{Use: "apply -f FILE|FOLDER", Short: "Create or change resources as kubectl apply does"}
		flags.AddFlags(c)
		c.Run = func(cmd *cobra.Command, args []string) {
			o, err := flags.ToOptions(f, cmd, "kubectl", args) // its warnings name other commands of kubectl
			cmdutil.CheckErr(err)
			cmdutil.CheckErr(o.Validate())
			cmdutil.CheckErr(applyDeclared(o))
		}
		c.Long = `Creates resources or changes them to what manifests say, as kubectl apply does. Where substorm up follows a folder of
manifests, change its files instead: it applies them anew when it starts.

What get -o yaml printed can be applied as it is: what the server adds (resourceVersion, uid, creationTimestamp, generation,
managedFields and status) is left out, other than by kubectl, which remembers it and fails at the next manifest without it.`
		c.Example = `  substorm apply -f magnetometer.yaml
  substorm apply --server-side -f manifests/

  # Restore what was saved with substorm get instruments -o yaml:
  substorm apply -f saved.yaml`
		return c
	})
}

// serverFields are what a server adds to what was declared. kubectl would remember them as declared: a later manifest without a resourceVersion
// would take it away, which is refused.
var serverFields = [][]string{{"metadata", "resourceVersion"}, {"metadata", "uid"}, {"metadata", "creationTimestamp"}, {"metadata", "generation"},
	{"metadata", "managedFields"}, {"status"}}

// applyDeclared applies what was read without what a server added to it; a status that is applied itself stays.
func applyDeclared(o *apply.ApplyOptions) error {
	infos, readErr := o.GetObjects()
	for _, info := range infos {
		object, ok := info.Object.(*unstructured.Unstructured)
		if !ok {
			continue
		}
		for _, field := range serverFields {
			if field[0] != o.Subresource {
				unstructured.RemoveNestedField(object.Object, field...)
			}
		}
	}
	if readErr == nil {
		return o.Run()
	}
	if len(infos) == 0 {
		return readErr
	}
	o.PostProcessorFn = nil // nothing is pruned where not all could be read, as by kubectl
	if err := o.Run(); err != nil {
		return utilerrors.Flatten(utilerrors.NewAggregate([]error{readErr, err}))
	}
	return readErr
}

// withoutHints leaves out the warning that an object was not created by kubectl apply, as none is that substorm up applied from a file: nothing
// is to be done.
type withoutHints struct{ w io.Writer }

// Write implements io.Writer. kubectl writes each warning at once.
func (w *withoutHints) Write(p []byte) (int, error) {
	if bytes.HasPrefix(p, []byte("Warning: resource ")) && bytes.Contains(p, []byte("missing the kubectl.kubernetes.io/last-applied-configuration annotation")) {
		return len(p), nil
	}
	return w.w.Write(p)
}

func deleteCommand() *cobra.Command {
	return command(func(f cmdutil.Factory, streams genericiooptions.IOStreams) *cobra.Command {
		c := delete.NewCmdDelete(f, streams)
		c.Use, c.DisableFlagsInUseLine = "delete TYPE NAME... | -f FILE|FOLDER", false
		c.Short = "Delete resources as kubectl delete does"
		c.Long = `Deletes resources, as kubectl delete does. What an Instrument sent stays in the archive.`
		c.Example = `  substorm delete instrument magnetometer
  substorm delete -f magnetometer.yaml`
		return c
	})
}

// command makes a command of kubectl's one of ours: it finds the cluster as all of ours do, it writes to the command's output, and what
// ends it is an error.
func command(of func(cmdutil.Factory, genericiooptions.IOStreams) *cobra.Command) *cobra.Command {
	var c *cobra.Command
	streams := genericiooptions.IOStreams{
		In:     reader(func() io.Reader { return c.InOrStdin() }),
		Out:    writer(func() io.Writer { return c.OutOrStdout() }),
		ErrOut: writer(func() io.Writer { return c.ErrOrStderr() }),
	}
	flags := &kube.Flags{}
	c = of(cmdutil.NewFactory(kube.NewGetter(flags)), streams)
	flags.Add(c.Flags())
	run := c.Run
	c.Run, c.RunE = nil, func(cmd *cobra.Command, args []string) error {
		ended := make(chan error, 1)
		go func() { ended <- returned(func() { run(cmd, args) }) }()
		select {
		case err := <-ended:
			return err
		case <-cmd.Context().Done(): // kubectl leaves signals to their default, which ends it
			return cmd.Context().Err()
		}
	}
	return c
}

// fatal is what kubectl says before it would end the process.
type fatal string

func init() { cmdutil.BehaviorOnFatal(func(message string, _ int) { panic(fatal(message)) }) }

// returned runs a command of kubectl's and returns what it would end the process with.
func returned(run func()) (err error) {
	defer func() {
		switch ended := recover().(type) {
		case nil:
		case fatal:
			err = usage.Verbatim(kube.Plain(strings.TrimSpace(string(ended)))) // it begins with "error: " or "Error from server"
		default:
			panic(ended)
		}
	}()
	run()
	return nil
}

// reader reads from what is known when it is first read from.
type reader func() io.Reader

// Read implements io.Reader.
func (r reader) Read(p []byte) (int, error) { return r().Read(p) }

// writer writes to what is known when it is first written to.
type writer func() io.Writer

// Write implements io.Writer.
func (w writer) Write(p []byte) (int, error) { return w().Write(p) }
