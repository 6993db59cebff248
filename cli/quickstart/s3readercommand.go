// SPDX-License-Identifier: Apache-2.0

package quickstart

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// adminTimeout bounds one request to the S3 server.
const adminTimeout = 20 * time.Second

func s3ReaderCommand() *cobra.Command {
	var endpoint, ca, root, reader string
	cmd := &cobra.Command{
		Use:   "s3-reader",
		Short: "Make the S3 user who may only list and read",
		Long: `Has the quickstart's S3 server (MinIO) know a user who may list and read its buckets and nothing else: the one that
feed servers use. It waits until the server answers. Running it again is harmless: the user's secret and rights are set
anew.`,
		Example: `  substorm quickstart s3-reader --endpoint https://substorm-s3.substorm.svc:9000 --ca-file ca.crt \
      --root-dir /etc/s3-root --reader-dir /etc/s3-read     # each with accessKeyID and secretAccessKey`,
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			admin := S3Admin{Endpoint: strings.TrimSuffix(endpoint, "/")}
			var err error
			if admin.Root, err = readS3User(root); err != nil {
				return err
			}
			user, err := readS3User(reader)
			if err != nil {
				return err
			}
			if admin.Client, err = trusting(ca); err != nil {
				return err
			}
			log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
			if err := admin.MakeReader(cmd.Context(), log, user); err != nil {
				return err
			}
			log.Info("the user may list and read all buckets, and nothing else", "user", user.AccessKeyID)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&endpoint, "endpoint", "", "URL of the S3 server")
	f.StringVar(&ca, "ca-file", "", "file with the authority that signed the server's certificate (default: the system's)")
	f.StringVar(&root, "root-dir", "", "folder with accessKeyID and secretAccessKey of the server's root user")
	f.StringVar(&reader, "reader-dir", "", "folder with accessKeyID and secretAccessKey that the user is to have")
	for _, name := range []string{"endpoint", "root-dir", "reader-dir"} {
		_ = cmd.MarkFlagRequired(name) // they are defined above
	}
	return cmd
}

func readS3User(dir string) (S3User, error) {
	var u S3User
	for name, into := range map[string]*string{keyS3ID: &u.AccessKeyID, keyS3Secret: &u.SecretAccessKey} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return u, err
		}
		if *into = strings.TrimSpace(string(text)); *into == "" {
			return u, fmt.Errorf("%s is empty", filepath.Join(dir, name))
		}
	}
	return u, nil
}

// trusting is a client that trusts the authorities in a file.
func trusting(ca string) (*http.Client, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		text, err := os.ReadFile(ca)
		if err != nil {
			return nil, err
		}
		transport.TLSClientConfig.RootCAs = x509.NewCertPool()
		if !transport.TLSClientConfig.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s holds no certificate", ca)
		}
	}
	return &http.Client{Transport: transport, Timeout: adminTimeout}, nil
}
