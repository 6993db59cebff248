// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"cmp"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
)

// The servers of leaves link into an account of the hub's servers that has nothing but
// copies of what leaves sent: a leaf can have the hub's server publish to any subject of
// the account that it links into. The hub's streams source from the copies.

// maxCopies bounds each stream of copies. Its messages wait for the hub's own stream, next to
// it, and for the operator, which trims it.
var maxCopies = resource.MustParse("256Mi")

// kindOfLeaf holds the differences between a leaf's two base streams and their copies.
type kindOfLeaf struct {
	description     string
	theirs          func(leaf string) string
	copies          func(hub, leaf string) string
	sourced, copied func(hub, leaf string) []wire.SourcedSubject
}

var (
	leafObservations = kindOfLeaf{"Telemetry", wire.ObservationStream, wire.CopiedObservationStream, wire.SourcedObservations, wire.CopiedObservations}
	leafNotices      = kindOfLeaf{"Notices", wire.NoticeStream, wire.CopiedNoticeStream, wire.SourcedNotices, wire.CopiedNotices}
)

// fromLeaf is a leaf's stream as a source. Its filter excludes messages that only matter there: records of gaps, and messages from its own
// leaves.
func fromLeaf(site *v1alpha1.Site, leaf v1alpha1.Leaf, kind kindOfLeaf) Source {
	return Source{
		Stream:        kind.theirs(leaf.Code),
		Subjects:      kind.sourced(site.Spec.Code, leaf.Code),
		APIPrefix:     wire.JetStreamAPI(cmp.Or(leaf.Domain, leaf.Code)),
		DeliverPrefix: wire.SourcedPrefix(site.Spec.Code, leaf.Code),
		From:          1,
	}
}

// sources are the sources of the hub's own stream of a kind: the copies, or, if one user serves for everything and there are no separate
// accounts, the leaves' streams themselves.
func sources(site *v1alpha1.Site, kind kindOfLeaf) []Source {
	var all []Source
	for _, leaf := range site.Spec.Leaves {
		switch js := &site.Spec.JetStream; {
		case js.LeafAccountKeySecretRef != nil:
			all = append(all, Source{
				Stream:        kind.copies(site.Spec.Code, leaf.Code),
				Subjects:      kind.copied(site.Spec.Code, leaf.Code),
				APIPrefix:     wire.LeavesAPI,
				DeliverPrefix: wire.CopiedPrefix(site.Spec.Code, leaf.Code),
				From:          1,
			})
		case js.AccountKeySecretRef == nil:
			all = append(all, fromLeaf(site, leaf, kind))
		}
	}
	return all
}

// CopiedStreams are the streams of a Site in the account of leaves: two for each leaf, so that no leaf can publish as another. A stream
// that is full accepts nothing more: messages that wait there are stored nowhere else.
func CopiedStreams(site *v1alpha1.Site) []Stream {
	code, js := site.Spec.Code, &site.Spec.JetStream
	if js.LeafAccountKeySecretRef == nil {
		return nil
	}
	var all []Stream
	for _, leaf := range site.Spec.Leaves {
		for _, s := range []struct {
			kind kindOfLeaf
			max  int64
		}{{leafObservations, js.Observations.MaxSize.Value()}, {leafNotices, js.Notices.MaxSize.Value()}} {
			all = append(all, Stream{
				Name:        s.kind.copies(code, leaf.Code),
				Description: s.kind.description + " of leaf " + leaf.Code + " on the way to Site " + code,
				MaxBytes:    min(s.max, maxCopies.Value()),
				Replicas:    int(js.Replicas),
				Duplicates:  duplicateWindow,
				Sources:     []Source{fromLeaf(site, leaf, s.kind)},
			})
		}
	}
	return all
}

// LeafAnswers begins the subjects on which the operator of a Site receives the answers of leaves. They are among those on which a leaf may
// answer.
func LeafAnswers(code string) string { return "$JSC.R.operator_" + code }

// LeavesUser is the user of the operator for one Site in the account of leaves: it makes,
// changes, looks at, trims and deletes the streams of copies, and asks whether a leaf answers.
func LeavesUser(site *v1alpha1.Site) JetStreamUser {
	inbox := "_INBOX_operator_" + site.Spec.Code
	user := JetStreamUser{
		Name:        "operator " + site.Namespace + "/" + site.Name + ", leaves",
		InboxPrefix: inbox,
		Publish: []string{"$JS.API.INFO", "$JS.API.STREAM.INFO.*", "$JS.API.STREAM.NAMES", "$JS.API.STREAM.CREATE.*",
			"$JS.API.STREAM.UPDATE.*", "$JS.API.STREAM.DELETE.*", "$JS.API.STREAM.PURGE.*"},
		Subscribe: []string{inbox + ".>", LeafAnswers(site.Spec.Code) + ".>"},
	}
	for _, leaf := range site.Spec.Leaves {
		for _, kind := range []kindOfLeaf{leafObservations, leafNotices} {
			user.Publish = append(user.Publish, fromLeaf(site, leaf, kind).DeleteConsumer("*"))
		}
	}
	return user
}
