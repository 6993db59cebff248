// SPDX-License-Identifier: Apache-2.0

// Package bus plans JetStream for a Site: streams, buckets, copies of leaves' streams, durable consumers, and the users with their
// permissions and credentials.
package bus
