// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/substorm/substorm/internal/wire"
)

// Each pool has an authority of its own, whose key is in no pod, and a certificate that is reissued if it is missing.
func TestPoolHasCertificates(t *testing.T) {
	w := newWorld(t)
	w.start()
	_, _, ports := w.ports()
	w.applySite("hub", "hub")
	w.applyPool("pool", ports)
	authority := made(w, "pool", "pool-peers-ca", &corev1.Secret{})
	first := made(w, "pool", "pool-peers", &corev1.Secret{})
	verify := func(secret *corev1.Secret) error {
		pair, err := tls.X509KeyPair(secret.Data["tls.crt"], secret.Data["tls.key"])
		if err != nil {
			return err
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(secret.Data["ca.crt"])
		_, err = pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: wire.GatewayName("pool"), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
		return err
	}
	if err := verify(first); err != nil {
		t.Error(err)
	}
	if !bytes.Equal(first.Data["ca.crt"], authority.Data["tls.crt"]) || bytes.Equal(first.Data["tls.key"], authority.Data["tls.key"]) {
		t.Error("the certificate is not the authority's")
	}
	w.remove(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "pool-peers", Namespace: w.namespace}})
	eventually(t, "another certificate", func() error {
		second := made(w, "pool", "pool-peers", &corev1.Secret{})
		if bytes.Equal(second.Data["tls.key"], first.Data["tls.key"]) {
			return errors.New("it is the same")
		}
		return verify(second)
	})
	again := made(w, "pool", "pool-peers-ca", &corev1.Secret{})
	if !bytes.Equal(again.Data["tls.key"], authority.Data["tls.key"]) {
		t.Error("the authority was replaced, and with it every pod's trust")
	}
}
