// SPDX-License-Identifier: Apache-2.0

package ingestgateway

import (
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/substorm/substorm/internal/flags"
)

func TestEnvironment(t *testing.T) {
	parse := func(env map[string]string, args ...string) (Config, string, error) {
		var cfg Config
		var ports string
		f := pflag.NewFlagSet("", pflag.ContinueOnError)
		addFlags(f, &cfg, &ports)
		if err := f.Parse(args); err != nil {
			return cfg, "", err
		}
		return cfg, ports, flags.FromEnvironment(f, func(name string) string { return env[name] })
	}
	cfg, ports, err := parse(map[string]string{
		"SUBSTORM_SITE": "hub", "SUBSTORM_NATS_SERVERS": "nats://a,nats://b", "SUBSTORM_DRAIN_TIMEOUT": "5s",
		"SUBSTORM_S3_BUCKET": "from-env", "SUBSTORM_PORTS": "1-2",
	}, "--s3-bucket", "from-flag", "--ports=30100-30149")
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Site != "hub" || len(cfg.NATS.Servers) != 2 || cfg.DrainTimeout != 5*time.Second || cfg.Objects.Bucket != "from-flag" || ports != "30100-30149" {
		t.Errorf("%+v, %s", cfg, ports)
	}
	if _, _, err := parse(map[string]string{"SUBSTORM_DRAIN_TIMEOUT": "soon"}); err == nil {
		t.Error("a bad value in the environment is accepted")
	}
}

func TestParsePorts(t *testing.T) {
	for s, want := range map[string][2]uint16{"30100-30149": {30100, 30149}, "7": {7, 7}, "": {}, "2-1": {}, "0-5": {}, "1-65536": {}, "a-b": {}} {
		first, last, err := parsePorts(s)
		if (err == nil) != (want != [2]uint16{}) || (err == nil && [2]uint16{first, last} != want) {
			t.Errorf("%q: %d-%d, %v", s, first, last, err)
		}
	}
}
