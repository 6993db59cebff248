// SPDX-License-Identifier: Apache-2.0

package ingestgateway

import (
	"github.com/substorm/substorm/ingest-gateway/intake/certificate"
)

// openCertificates reads the pool's certificate, where it has one.
func (g *gateway) openCertificates() (err error) {
	if g.cfg.TLSDir == "" {
		return nil
	}
	g.certificates, err = certificate.Open(certificate.Config{
		Dir: g.cfg.TLSDir, ClientCADir: g.cfg.ClientCADir, Logger: g.log, Metrics: g.metrics,
	})
	return err
}
