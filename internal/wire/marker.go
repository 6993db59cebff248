// SPDX-License-Identifier: Apache-2.0

package wire

import "encoding/json"

// SiteMarker says which Site owns a code, in the bucket (SiteMarkerKey) and in
// the metadata of its streams. Whoever finds another Site's marker keeps out.
type SiteMarker struct {
	Format int    `json:"format"`
	Code   string `json:"code"`
	// UID of the Site.
	UID       string `json:"uid"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Cluster is the uid of the cluster's kube-system namespace. A Site that
	// was deleted and made again under its old name in the same cluster goes
	// on with its archive.
	Cluster string `json:"cluster"`
}

// Encode writes the marker as JSON.
func (m SiteMarker) Encode() ([]byte, error) {
	m.Format = Format
	return json.Marshal(m)
}

// DecodeSiteMarker reads a marker. Errors: ErrMalformed, ErrNewerFormat.
func DecodeSiteMarker(data []byte) (SiteMarker, error) {
	return decode(data, func(m SiteMarker) int { return m.Format })
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
	// ConsumerMetadataAfter has, where a durable was made anew behind a place, the
	// sequence up to which the FeedConsumer had acknowledged everything.
	ConsumerMetadataAfter = "substorm-acknowledged"
)
