// SPDX-License-Identifier: Apache-2.0

//go:build linux

package doctor

import (
	"context"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"

	"github.com/substorm/substorm/cli/up"
	"github.com/substorm/substorm/cli/up/manifests"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/workload"
)

// declared is what manifests say, as far as it matters here.
type declared struct {
	instruments []v1alpha1.Instrument
	gateways    []v1alpha1.IngestGateway
	servers     int
	// rsync are the ports at which FeedServers serve it.
	rsync []int32
	// hubs are those that Sites link to, host:port.
	hubs []string
}

const manifestsCheck = "manifests"

// lookAtManifests reads the files that declare a Site. It returns everything that can be read of them, even if something else is wrong.
func lookAtManifests(ctx context.Context, paths []string) (declared, []Check) {
	objects, err := up.Declared(paths, "default")
	d, checks := decode(objects)
	if err == nil {
		err = up.Try(ctx, objects)
	}
	if err != nil {
		for line := range strings.SplitSeq(err.Error(), "\n") {
			checks = append(checks, failed(manifestsCheck, "substorm up does not start with it, and a Site that runs keeps what was declared before", "%s", line))
		}
	}
	if len(checks) > 0 {
		return d, checks
	}
	where := "none is named with -f: substorm up runs the empty Site that is built in"
	if len(paths) > 0 {
		where = "in " + strings.Join(paths, ", ")
	}
	return d, []Check{fine(manifestsCheck, "%d objects, %d of them Instruments; %s", len(objects), len(d.instruments), where)}
}

// decode reads our objects as their kinds' types, and warns of fields that these do not have. It leaves out objects
// that cannot be read: Try says why.
func decode(objects []*manifests.Object) (d declared, unknown []Check) {
	scheme := runtime.NewScheme()
	_ = v1alpha1.AddToScheme(scheme) // new: nothing contradicts
	reader := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme, scheme, json.SerializerOptions{Strict: true})
	for _, o := range objects {
		typed, err := read(reader, o)
		strict, isStrict := runtime.AsStrictDecodingError(err)
		if isStrict {
			for _, e := range strict.Errors() {
				unknown = append(unknown, warning(manifestsCheck, "kubectl explain says which fields there are", "%s: %v", o, e))
			}
		}
		if err == nil || isStrict {
			d.add(typed)
		}
	}
	return d, unknown
}

func read(reader runtime.Decoder, o *manifests.Object) (runtime.Object, error) {
	text, err := o.MarshalJSON()
	if err != nil {
		return nil, err
	}
	typed, _, err := reader.Decode(text, nil, nil)
	return typed, err
}

func (d *declared) add(typed runtime.Object) {
	switch o := typed.(type) {
	case *v1alpha1.Instrument:
		d.instruments = append(d.instruments, *o)
	case *v1alpha1.IngestGateway:
		d.gateways = append(d.gateways, *o)
	case *v1alpha1.FeedServer:
		d.servers++
		if _, port, ok := workload.RsyncPorts(o); ok {
			d.rsync = append(d.rsync, port)
		}
	case *v1alpha1.Site:
		if hub, err := url.Parse(o.Spec.Upstream.URL); err == nil && hub.Port() != "" { // else there is none, or Try says what is wrong
			d.hubs = append(d.hubs, hub.Host)
		}
	}
}
