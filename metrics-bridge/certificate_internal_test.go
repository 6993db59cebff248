// SPDX-License-Identifier: Apache-2.0

package metricsbridge

import (
	"crypto/x509"
	"encoding/pem"
	"testing"
	"time"
)

type counter int

func (c *counter) Enqueue() { *c++ }

// TestCertificate: it is good for its host, and replaced in time; clients that trust what was published before or after the change accept
// the old one and the new one.
func TestCertificate(t *testing.T) {
	const host = "bridge.substorm.svc"
	c, err := newCertificate(host)
	if err != nil {
		t.Fatal(err)
	}
	told := new(counter)
	c.AddListener(told)
	before, trustedBefore := leaf(t, c), c.trusted()
	if err := before.VerifyHostname(host); err != nil {
		t.Error(err)
	}
	if err := c.renew(time.Now().Add(lifetime - renewBefore - time.Hour)); err != nil || !leaf(t, c).Equal(before) || *told != 0 {
		t.Errorf("it was replaced before it was time: %v", err)
	}
	if err := c.renew(time.Now().Add(lifetime - renewBefore)); err != nil || leaf(t, c).Equal(before) || *told != 1 {
		t.Errorf("it was not replaced in time: %v", err)
	}
	for what, is := range map[string]struct {
		of      *x509.Certificate
		trusted []byte
		want    bool
	}{
		"the old one by those of before": {before, trustedBefore, true},
		"the old one by those of after":  {before, c.trusted(), true},
		"the new one by those of after":  {leaf(t, c), c.trusted(), true},
		"the new one by those of before": {leaf(t, c), trustedBefore, false},
	} {
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(is.trusted)
		if _, err := is.of.Verify(x509.VerifyOptions{DNSName: host, Roots: roots}); (err == nil) != is.want {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func leaf(t *testing.T, c *certificate) *x509.Certificate {
	t.Helper()
	chain, _ := c.CurrentCertKeyContent()
	block, _ := pem.Decode(chain)
	parsed, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}
