// SPDX-License-Identifier: Apache-2.0

package minioadmin

import (
	"encoding/json"

	"github.com/substorm/substorm/internal/wire"
)

// Policy says what a user may do, in the language of AWS's identity policies, which MinIO and others take.
type Policy struct {
	Name       string
	Statements []Statement
}

// Statement allows or denies actions on resources.
type Statement struct {
	Effect   string
	Action   []string
	Resource []string
}

func (p Policy) document() ([]byte, error) {
	return json.Marshal(map[string]any{"Version": "2012-10-17", "Statement": p.Statements})
}

// Read allows to list and read all buckets. MinIO's own policy readonly lists none.
func Read() Policy {
	return Policy{"substorm-read", []Statement{
		{"Allow", []string{"s3:GetBucketLocation", "s3:ListBucket", "s3:GetObject"}, []string{"arn:aws:s3:::*"}},
	}}
}

// Gateway allows what ingest gateways do in a bucket: to store objects and packs, to read them and the manifests that list
// them, and to delete what is no part of the archive. It allows no manifest, record of a change, ledger or gap to be written, and no object to be deleted. S3 has no
// right to create alone: an object can be overwritten, which the digests in notices and manifests tell.
func Gateway(bucket string) Policy {
	in := func(prefixes ...string) []string {
		var all []string
		for _, prefix := range prefixes {
			all = append(all, "arn:aws:s3:::"+bucket+"/"+prefix+"*")
		}
		return all
	}
	return Policy{"substorm-gateway-" + bucket, []Statement{
		{"Allow", []string{"s3:GetBucketLocation", "s3:ListBucket", "s3:ListBucketMultipartUploads"}, []string{"arn:aws:s3:::" + bucket}},
		{"Allow", []string{"s3:GetObject"}, in("o/", "packs/", "staging/", "quarantine/", "manifest/")},
		{"Allow", []string{"s3:PutObject", "s3:AbortMultipartUpload", "s3:ListMultipartUploadParts"}, in("o/", "packs/", "staging/", "quarantine/")},
		{"Allow", []string{"s3:DeleteObject"}, in("staging/", "quarantine/")},
		// The decisions of `substorm adopt`, which it finishes with more rights.
		{"Deny", []string{"s3:PutObject", "s3:DeleteObject"}, in("quarantine/*/" + wire.AdoptWriter + "/")},
	}}
}
