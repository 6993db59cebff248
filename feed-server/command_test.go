// SPDX-License-Identifier: Apache-2.0

package feedserver

import (
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/substorm/substorm/feed-server/endpoint"
	"github.com/substorm/substorm/internal/flags"
)

func TestEnvironment(t *testing.T) {
	var cfg Config
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	addFlags(f, &cfg)
	if err := f.Parse([]string{"--pod=from-flag"}); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"SUBSTORM_SITE": "hub", "SUBSTORM_POD": "from-env", "SUBSTORM_NATS_SERVERS": "nats://a,nats://b", "SUBSTORM_DRAIN_TIMEOUT": "5s", "SUBSTORM_ROBOT_REQUESTS_PER_SECOND": "1000"}
	if err := flags.FromEnvironment(f, func(name string) string { return env[name] }); err != nil {
		t.Fatal(err)
	}
	if cfg.Site != "hub" || cfg.Pod != "from-flag" || len(cfg.NATS.Servers) != 2 || cfg.DrainTimeout != 5*time.Second {
		t.Errorf("%+v", cfg)
	}
	want := endpoint.DefaultLimits()
	want.Robot.PerSecond = 1000
	if cfg.Limits != want {
		t.Errorf("limits %+v, want %+v", cfg.Limits, want)
	}
}

// The error names every flag that is missing.
func TestMissing(t *testing.T) {
	err := Run(t.Context(), Config{})
	if err == nil {
		t.Fatal("it runs without a configuration")
	}
	for _, name := range []string{"--site", "--pod", "--listen", "--listen-http", "--nats-servers", "--readers", "--drain-timeout", "--robot-burst"} {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("%s is not named: %v", name, err)
		}
	}
}
