// SPDX-License-Identifier: Apache-2.0

package quickstart

import (
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/substorm/substorm/cli/backend"
	"github.com/substorm/substorm/internal/minioadmin"
)

// adminTimeout bounds one request to the S3 server.
const adminTimeout = 20 * time.Second

func s3UsersCommand() *cobra.Command {
	var endpoint, ca, root, reader, gateway, bucket string
	cmd := &cobra.Command{
		Use:   "s3-users",
		Short: "Make the S3 users of feed servers and gateways",
		Long: `Has the quickstart's S3 server (MinIO) know two users: that of feed servers, who may list and read its buckets and
nothing else, and that of gateways, who may store objects and packs in one bucket, and delete nothing of the archive. It
waits until the server answers. Running it again is harmless: the users' secrets and rights are set anew.`,
		Example: `  substorm quickstart s3-users --s3-endpoint https://substorm-s3.substorm.svc:9000 --s3-tls-dir /etc/s3-tls --s3-bucket substorm \
      --root-dir /etc/s3-root --reader-dir /etc/s3-reader --gateway-dir /etc/s3-gateway     # each with accessKeyID and secretAccessKey`,
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			admin := minioadmin.Admin{Endpoint: strings.TrimSuffix(endpoint, "/")}
			var err error
			if admin.Root, err = readS3User(root); err != nil {
				return err
			}
			if admin.Client, err = trusting(ca); err != nil {
				return err
			}
			log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
			for _, u := range []struct {
				dir    string
				policy minioadmin.Policy
			}{{reader, minioadmin.Read()}, {gateway, minioadmin.Gateway(bucket)}} {
				user, err := readS3User(u.dir)
				if err != nil {
					return err
				}
				if err := admin.MakeUser(cmd.Context(), log, user, u.policy); err != nil {
					return err
				}
				log.Info("the user is there", "user", user.AccessKeyID, "policy", u.policy.Name)
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&endpoint, "s3-endpoint", "", "URL of the S3 server")
	f.StringVar(&ca, "s3-tls-dir", "", "folder with ca.crt, the authority that signed the server's certificate (default: the system's)")
	f.StringVar(&root, "root-dir", "", "folder with accessKeyID and secretAccessKey of the server's root user")
	f.StringVar(&reader, "reader-dir", "", "folder with accessKeyID and secretAccessKey that the user of feed servers is to have")
	f.StringVar(&gateway, "gateway-dir", "", "folder with accessKeyID and secretAccessKey that the user of gateways is to have")
	f.StringVar(&bucket, "s3-bucket", "", "bucket of the archive")
	for _, name := range []string{"s3-endpoint", "root-dir", "reader-dir", "gateway-dir", "s3-bucket"} {
		_ = cmd.MarkFlagRequired(name) // they are defined above
	}
	return cmd
}

func readS3User(dir string) (minioadmin.User, error) {
	var u minioadmin.User
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

// trusting is a client that trusts the authority in a folder.
func trusting(dir string) (*http.Client, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if dir != "" {
		config, err := backend.TLSFromDir(dir)
		if err != nil {
			return nil, err
		}
		transport.TLSClientConfig = config
	}
	return &http.Client{Transport: transport, Timeout: adminTimeout}, nil
}
