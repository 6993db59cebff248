// SPDX-License-Identifier: Apache-2.0

package feedserver

import (
	"fmt"
	"io"
	"os"

	"github.com/substorm/substorm/feed-server/endpoint"
)

// The values of Config.AccessLog that are no file.
const (
	accessLogOff    = "off"
	accessLogStdout = "stdout"
)

// openAdmission makes what all endpoints share.
func (s *server) openAdmission() error {
	cfg := &s.cfg
	proxies, err := endpoint.ParseProxies(cfg.Proxies)
	if err != nil {
		return err
	}
	out, err := openAccessLog(cfg.AccessLog)
	if err != nil {
		return err
	}
	if out != nil {
		s.accessLog = endpoint.NewAccessLog(out, s.metrics)
	}
	s.admission = endpoint.NewAdmission(endpoint.AdmissionConfig{
		Limits: cfg.Limits, Certificates: s.certificates, Proxies: proxies, MaxSockets: cfg.MaxSockets, MaxConnections: cfg.MaxConnections,
		AccessLog: s.accessLog, Logger: s.log, Metrics: s.metrics,
	})
	return nil
}

// openAccessLog returns where the access log goes; nil: nowhere.
func openAccessLog(to string) (io.Writer, error) {
	switch to {
	case "", accessLogOff:
		return nil, nil
	case accessLogStdout:
		return os.Stdout, nil
	}
	f, err := os.OpenFile(to, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("--access-log: %w", err)
	}
	return f, nil
}
