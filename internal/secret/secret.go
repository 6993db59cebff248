// SPDX-License-Identifier: Apache-2.0

// Package secret recognizes texts that grant access, which are not meant to be sent as observations.
package secret

import (
	"bytes"
	"regexp"
)

// Media types of secrets. They are not registered ones.
const (
	MediaTypeKey        = "application/x-pem-file"
	MediaTypeKubeconfig = "application/x-kubeconfig"
	MediaTypeWireGuard  = "application/x-wireguard-config"
	MediaTypeSecret     = "application/x-kubernetes-secret"
	MediaTypeNATS       = "application/x-nats-credentials"
)

// kubectl writes a kubeconfig's keys in the order of the alphabet, and behind "clusters" comes a long certificate.
var (
	privateKey  = regexp.MustCompile(`-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----`)
	kubeKind    = regexp.MustCompile(`\bkind["']?\s*:\s*["']?Config\b`)
	kubeVersion = regexp.MustCompile(`\bapiVersion["']?\s*:\s*["']?v1\b`)
	kubeParts   = regexp.MustCompile(`(?:^|[\n{,])\s*["']?(?:clusters|contexts|current-context|users)["']?\s*:`)
	kubeSecret  = regexp.MustCompile(`\bkind["']?\s*:\s*["']?Secret\b`)
	natsSeed    = regexp.MustCompile(`(?m)^S[ACNOUX][A-Z2-7]{56}\s*$|-----BEGIN NATS USER JWT-----|-----BEGIN USER NKEY SEED-----`)
	wireGuard   = regexp.MustCompile(`(?m)^\s*PrivateKey\s*=\s*[A-Za-z0-9+/]{43}=`)
)

// MediaTypeOf returns the media type of a text that begins with these bytes and is a secret; empty for other texts.
func MediaTypeOf(head []byte) string {
	kind, version, parts := kubeKind.Match(head), kubeVersion.Match(head), kubeParts.Match(head)
	switch {
	case privateKey.Match(head):
		return MediaTypeKey
	case kind && version, kind && parts, version && parts:
		return MediaTypeKubeconfig
	case kubeSecret.Match(head) && (version || bytes.Contains(head, []byte("data"))):
		return MediaTypeSecret
	case natsSeed.Match(head):
		return MediaTypeNATS
	case wireGuard.Match(head):
		return MediaTypeWireGuard
	default:
		return ""
	}
}

// IsMediaType says whether a media type is one of a secret.
func IsMediaType(mediaType string) bool {
	switch mediaType {
	case MediaTypeKey, MediaTypeKubeconfig, MediaTypeWireGuard, MediaTypeSecret, MediaTypeNATS:
		return true
	default:
		return false
	}
}
