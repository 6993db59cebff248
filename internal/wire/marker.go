// SPDX-License-Identifier: Apache-2.0

package wire

// SiteMarker says which Site owns a code, in the bucket (SiteMarkerKey) and in the metadata of its streams. A program that finds another
// Site's marker does not use them.
type SiteMarker struct {
	Code string `json:"code"`
	// UID of the Site.
	UID       string `json:"uid"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Cluster is the uid of the cluster's kube-system namespace, or what --cluster-id of the operator says. A Site that was deleted and
	// made again under its old name in the same cluster continues with its archive.
	Cluster string `json:"cluster"`
}

// Keys in the metadata of streams and their consumers.
const (
	// StreamMetadataMarker has the encoded SiteMarker of a stream.
	StreamMetadataMarker = "substorm-site"
	// StreamMetadataDeletion says what becomes of a Feed's own stream without the
	// Feed: Delete, or Retain.
	StreamMetadataDeletion = "substorm-deletion-policy"
	// ConsumerMetadataUID has the uid of the FeedConsumer that a durable is of.
	ConsumerMetadataUID = "substorm-consumer-uid"
	// ConsumerMetadataAfter has, if a durable was recreated behind a place, the sequence up to which the FeedConsumer had acknowledged
	// everything.
	ConsumerMetadataAfter = "substorm-acknowledged"
)
