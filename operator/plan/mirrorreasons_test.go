// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"testing"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
)

// TestMirrorReasons: what runs report are reasons of the API, by the same words.
func TestMirrorReasons(t *testing.T) {
	t.Parallel()
	for reported, reason := range map[string]string{
		wire.MirrorReasonUnreachable: v1alpha1.ReasonUnreachable, wire.MirrorReasonAccessDenied: v1alpha1.ReasonAccessDenied,
		wire.MirrorReasonHostKeyMismatch: v1alpha1.ReasonHostKeyMismatch, wire.MirrorReasonCertificate: v1alpha1.ReasonCertificateRefused,
		wire.MirrorReasonPartnerFull: v1alpha1.ReasonPartnerFull, wire.MirrorReasonDigestMismatch: v1alpha1.ReasonDigestMismatch,
		wire.MirrorReasonSafetyStop:      v1alpha1.ReasonSafetyStop,
		wire.MirrorReasonInvalidTemplate: v1alpha1.ReasonInvalidTemplate,
		wire.MirrorReasonMaintenance:     v1alpha1.ReasonMaintenance,
		wire.MirrorReasonNotConfirmed:    v1alpha1.ReasonPurgeNotConfirmed, wire.MirrorReasonProtocol: v1alpha1.ReasonProtocolError,
		wire.MirrorReasonStore:        v1alpha1.ReasonStoreFailed,
		wire.MirrorReasonHasListeners: v1alpha1.ReasonInstrumentHasListeners,
		wire.MirrorReasonRefused:      v1alpha1.ReasonRefused, wire.MirrorReasonOwed: v1alpha1.ReasonOwed, wire.MirrorReasonLocal: v1alpha1.ReasonLocalFailed,
		wire.MirrorReasonTooMany: v1alpha1.ReasonTooManyInstruments, wire.MirrorReasonNameConflict: v1alpha1.ReasonNameConflict,
	} {
		if reported != reason {
			t.Errorf("runs report %s, and the API has %s", reported, reason)
		}
	}
	for result, is := range map[string]v1alpha1.MirrorResult{wire.MirrorRunning: v1alpha1.MirrorRunning, wire.MirrorSucceeded: v1alpha1.MirrorSucceeded,
		wire.MirrorFailed: v1alpha1.MirrorFailed, wire.MirrorStopped: v1alpha1.MirrorStopped} {
		if result != string(is) {
			t.Errorf("runs report %s, and the API has %s", result, is)
		}
	}
}
