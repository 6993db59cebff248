// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"github.com/substorm/substorm/crds"
)

// serveDir makes this test's binary a server of a folder, which can be killed.
const serveDir = "KUBEAPI_TEST_SERVE"

func TestMain(m *testing.M) {
	if dir := os.Getenv(serveDir); dir != "" {
		if err := serve(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func serve(dir string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	s, err := Open(Config{Dir: dir, CRDs: crds.Files, Log: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	if err != nil {
		return err
	}
	fmt.Println(s.Address())
	return s.Serve(ctx)
}
