// SPDX-License-Identifier: Apache-2.0

package archivist

import (
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/substorm/substorm/internal/flags"
)

func TestEnvironment(t *testing.T) {
	var cfg Config
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	addFlags(f, &cfg)
	if err := f.Parse([]string{"--pod=from-flag", "--forward-networks=192.0.2.0/24,2001:db8::/32"}); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"SUBSTORM_SITE": "hub", "SUBSTORM_POD": "from-env", "SUBSTORM_NATS_SERVERS": "nats://a,nats://b", "SUBSTORM_PART_INTERVAL": "5s", "SUBSTORM_S3_BUCKET": "archive"}
	if err := flags.FromEnvironment(f, func(name string) string { return env[name] }); err != nil {
		t.Fatal(err)
	}
	if cfg.Site != "hub" || cfg.Pod != "from-flag" || len(cfg.NATS.Servers) != 2 || cfg.PartInterval != 5*time.Second || cfg.Objects.Bucket != "archive" || len(cfg.ForwardNetworks) != 2 {
		t.Errorf("%+v", cfg)
	}
}
