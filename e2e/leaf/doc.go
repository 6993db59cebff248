// SPDX-License-Identifier: Apache-2.0

// Package leaf has the tests of a hub that carries another Site's messages: two
// NATS servers, each with its JetStream domain, a link that is cut, gateways that
// receive at both ends. SUBSTORM_TEST_OUTAGE is how long an outage lasts.
package leaf
