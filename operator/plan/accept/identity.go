// SPDX-License-Identifier: Apache-2.0

package accept

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
	"github.com/substorm/substorm/operator/plan/finding"
	"github.com/substorm/substorm/operator/plan/workload"
)

const (
	// minToken is the least length of a token, in bytes: gateways hold a fast hash of it, which protects only tokens that cannot be
	// guessed.
	minToken = 16
	// maxTokens bounds how many of them a listener has: each is tried.
	maxTokens = 8
	// saltSize in bytes.
	saltSize = 16
)

// CertificateNames are the names of client certificates that a listener takes.
func CertificateNames(listener *v1alpha1.Listener) []string {
	if listener.ClientCertificate == nil {
		return nil
	}
	return listener.ClientCertificate.Names
}

// tlsIsNotConfigured: a listener is never plain that asks for TLS.
func tlsIsNotConfigured(in listening) (finding.Finding, bool) {
	tls := in.gateway.Spec.TLS
	switch mode := in.listener.Mode(); {
	case mode == v1alpha1.TLSNone:
	case tls == nil:
		return finding.Bad(v1alpha1.ReasonTLSNotConfigured, fmt.Sprintf(
			"%s has tlsMode %s, and IngestGateway %q has no certificate: give it one with spec.tls.certificateSecretRef, or set tlsMode to None",
			in.field(), mode, in.gateway.Name)), true
	case mode == v1alpha1.TLSMutual && tls.CASecretRef == nil:
		return finding.Bad(v1alpha1.ReasonTLSNotConfigured, fmt.Sprintf(
			"%s has tlsMode Mutual, and IngestGateway %q knows no authority of client certificates: name one in its spec.tls.caSecretRef, or set tlsMode to Server",
			in.field(), in.gateway.Name)), true
	}
	return finding.Finding{}, false
}

// TokenSecrets are the Secrets whose tokens an Instrument's senders show.
func TokenSecrets(inst *v1alpha1.Instrument) []workload.SecretNeed {
	var needs []workload.SecretNeed
	for i := range inst.Spec.Listeners {
		needs = append(needs, tokenSecrets(&inst.Spec.Listeners[i])...)
	}
	return needs
}

func tokenSecrets(listener *v1alpha1.Listener) []workload.SecretNeed {
	ref := listener.TokenSecretKeyRef
	if ref == nil {
		return nil
	}
	return []workload.SecretNeed{{Field: fmt.Sprintf("spec.listeners[name=%s].tokenSecretKeyRef", listener.Name), Name: ref.Name, Keys: []string{ref.Key}}}
}

// tokenSecretIsNotLabeled: the registry keeps the tokens that it has of such a Secret, so that a missing label stops no sender that is
// sending already.
func tokenSecretIsNotLabeled(in listening) (finding.Finding, bool) {
	for _, need := range tokenSecrets(in.listener) {
		if f, found := NotTokens(in.secrets[need.Name], need.Name, need.Field); found {
			return f, true
		}
	}
	return finding.Finding{}, false
}

// tokenDoesNotExist: a token that no Secret holds any more is no longer valid, see Revoke.
func tokenDoesNotExist(in listening) (finding.Finding, bool) {
	f, missing := in.secrets.Missing(tokenSecrets(in.listener))
	f.Message += "; until then that listener takes no token"
	return f, missing
}

func tokenIsGuessable(in listening) (finding.Finding, bool) {
	ref := in.listener.TokenSecretKeyRef
	if ref == nil || !TooGuessable(in.secrets[ref.Name], ref.Key) {
		return finding.Finding{}, false
	}
	return finding.Bad(v1alpha1.ReasonSecretIncomplete, fmt.Sprintf(
		"%s of Secret %q, which %s.tokenSecretKeyRef names, must hold 1 to %d lines of at least %d characters each: "+
			"make a token with `openssl rand -hex 32`; until then that listener takes no token",
		ref.Key, ref.Name, in.field(), maxTokens, minToken)), true
}

// TokensOf returns the lines of a Secret's value that are not empty.
func TokensOf(secret *corev1.Secret, key string) []string {
	if secret == nil {
		return nil
	}
	return strings.Fields(string(secret.Data[key]))
}

// TokenHashes hashes a listener's tokens. A token that was in the entry before keeps its salt: an entry changes only if a token does.
func TokenHashes(inst *v1alpha1.Instrument, listener *v1alpha1.Listener, secrets workload.Secrets, was []wire.TokenHash) []wire.TokenHash {
	if listener.TokenSecretKeyRef == nil {
		return nil
	}
	return HashTokens(inst.UID, secrets[listener.TokenSecretKeyRef.Name], listener.TokenSecretKeyRef.Key, was)
}

// HashTokens hashes the tokens of a Secret's key that are for an object with a uid.
func HashTokens(uid types.UID, secret *corev1.Secret, key string, was []wire.TokenHash) []wire.TokenHash {
	var hashes []wire.TokenHash
	for _, token := range TokensOf(secret, key) {
		if i := slices.IndexFunc(was, func(h wire.TokenHash) bool { return h.Matches(token) }); i >= 0 {
			hashes = append(hashes, was[i])
			continue
		}
		hashes = append(hashes, wire.HashToken(salt(uid, secret, key, len(hashes)), token))
	}
	return hashes
}

// TooGuessable says whether a Secret's key holds no tokens, too many, or one that
// is too short.
func TooGuessable(secret *corev1.Secret, key string) bool {
	tokens := TokensOf(secret, key)
	return len(tokens) == 0 || len(tokens) > maxTokens || slices.ContainsFunc(tokens, func(t string) bool { return len(t) < minToken })
}

// Revoke returns an entry that stays without the tokens that none of its
// Instrument's Secrets holds any more, and with who may read as it is declared now.
// A listener that needs a token and has none left takes none.
func Revoke(inst *v1alpha1.Instrument, entry wire.InstrumentEntry, secrets workload.Secrets) wire.InstrumentEntry {
	entry.Access = AccessEntry(&inst.Spec.Access)
	entry.Listeners = HeldByListeners(inst, entry.Listeners, secrets)
	return entry
}

// HeldByListeners are the listeners of an entry without the tokens that none of the Instrument's
// Secrets holds any more.
func HeldByListeners(inst *v1alpha1.Instrument, listeners []wire.ListenerEntry, secrets workload.Secrets) []wire.ListenerEntry {
	var tokens []string
	for _, need := range TokenSecrets(inst) {
		tokens = append(tokens, TokensOf(secrets[need.Name], need.Keys[0])...)
	}
	listeners = slices.Clone(listeners)
	for i := range listeners {
		listeners[i].Tokens = Held(listeners[i].Tokens, tokens)
	}
	return listeners
}

// Held returns those of an entry's hashes that match a list's tokens; if none is left, one that no token matches.
func Held(hashes []wire.TokenHash, tokens []string) []wire.TokenHash {
	if len(hashes) == 0 {
		return hashes
	}
	if hashes = HeldTokens(hashes, tokens); len(hashes) == 0 {
		return []wire.TokenHash{wire.NoToken()}
	}
	return hashes
}

// HeldTokens returns an entry's hashes that match a list's tokens.
func HeldTokens(hashes []wire.TokenHash, tokens []string) []wire.TokenHash {
	return slices.DeleteFunc(slices.Clone(hashes), func(h wire.TokenHash) bool { return !slices.ContainsFunc(tokens, h.Matches) })
}

// salt returns a salt that no other token has: a Secret's uid and version are used once. It need not be secret, and a planner cannot use
// random numbers.
func salt(uid types.UID, secret *corev1.Secret, key string, line int) []byte {
	sum := sha256.Sum256(fmt.Appendf(nil, "substorm token salt\n%s\n%s\n%s\n%s\n%d",
		uid, secret.UID, secret.ResourceVersion, hex.EncodeToString([]byte(key)), line))
	return sum[:saltSize]
}

// isToldApart returns whether two listeners with an address in common are distinguished by the certificates of their senders.
func (c claim) isToldApart(listener *v1alpha1.Listener) bool {
	names := CertificateNames(listener)
	return len(names) > 0 && len(c.certificates) > 0 &&
		!slices.ContainsFunc(names, func(n string) bool { return slices.Contains(c.certificates, n) })
}

// encryptsOtherwise: the path of a request over HTTP is known only once it is known whether the request comes over TLS.
func (c claim) encryptsOtherwise(listener *v1alpha1.Listener) bool {
	return listener.Protocol == v1alpha1.ListenerHTTP && c.protocol == listener.Protocol &&
		(c.mode == v1alpha1.TLSNone) != (listener.Mode() == v1alpha1.TLSNone)
}

// otherIdentity is what else distinguishes the senders of a listener.
func otherIdentity(listener *v1alpha1.Listener) string {
	if listener.Mode() == v1alpha1.TLSMutual {
		return ", or clientCertificate names that differ"
	}
	return ""
}
