// SPDX-License-Identifier: Apache-2.0

// Package minioadmin makes users of a MinIO server, by its administration interface, and says what users of Substorm
// need: it is for servers that Substorm itself runs, in the quickstart and in tests.
package minioadmin

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"runtime/debug"
	"time"

	"github.com/minio/minio-go/v7/pkg/signer"
	"github.com/secure-io/sio-go"
	"golang.org/x/crypto/argon2"

	"github.com/substorm/substorm/internal/retry"
)

// User of an S3 server.
type User struct{ AccessKeyID, SecretAccessKey string }

// Admin asks MinIO's administration interface.
type Admin struct {
	// Endpoint is the server's URL.
	Endpoint string
	Client   *http.Client
	Root     User
}

// adminPause is between attempts to reach the server.
const adminPause = time.Second

// MakeUser makes a user with a policy. If the user exists, its secret and policy are replaced. It waits until the server answers, or ctx
// ends. Errors name the request that failed.
func (a Admin) MakeUser(ctx context.Context, log *slog.Logger, user User, policy Policy) error {
	secret, err := json.Marshal(map[string]string{"secretKey": user.SecretAccessKey, "status": "enabled"})
	if err != nil {
		return err
	}
	rights, err := policy.document()
	if err != nil {
		return err
	}
	sealed, err := seal(a.Root.SecretAccessKey, secret)
	if err != nil {
		return err
	}
	for _, r := range []struct {
		path  string
		query url.Values
		body  []byte
	}{
		{"add-canned-policy", url.Values{"name": {policy.Name}}, rights},
		{"add-user", url.Values{"accessKey": {user.AccessKeyID}}, sealed},
		{"set-user-or-group-policy", url.Values{"policyName": {policy.Name}, "userOrGroup": {user.AccessKeyID}, "isGroup": {"false"}}, nil},
	} {
		if err := a.putPatiently(ctx, log, r.path, r.query, r.body); err != nil {
			return fmt.Errorf("%s of the S3 server at %s: %w", r.path, a.Endpoint, err)
		}
	}
	return nil
}

// errRefused: trying again does not help.
var errRefused = errors.New("refused")

func (a Admin) putPatiently(ctx context.Context, log *slog.Logger, path string, query url.Values, body []byte) error {
	for {
		err := a.put(ctx, path, query, body)
		if err == nil || errors.Is(err, errRefused) {
			return err
		}
		log.Info("the S3 server does not answer yet", "error", err)
		if !retry.Sleep(ctx, adminPause) {
			return errors.Join(err, ctx.Err())
		}
	}
}

func (a Admin) put(ctx context.Context, path string, query url.Values, body []byte) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPut, a.Endpoint+"/minio/admin/v3/"+path+"?"+query.Encode(), bytes.NewReader(body))
	if err != nil {
		return errors.Join(errRefused, err)
	}
	sum := sha256.Sum256(body)
	r.Header.Set("X-Amz-Content-Sha256", hex.EncodeToString(sum[:]))
	answer, err := a.Client.Do(signer.SignV4(*r, a.Root.AccessKeyID, a.Root.SecretAccessKey, "", ""))
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 4096))
	switch {
	case answer.StatusCode == http.StatusOK:
		return nil
	case answer.StatusCode >= http.StatusInternalServerError:
		return errors.Join(fmt.Errorf("%s: %s", answer.Status, text), err)
	}
	return fmt.Errorf("%w: %s: %s: check that the Secret of the root user is the one that the server was started with", errRefused, answer.Status, text)
}

// The parameters of seal, as MinIO's DecryptData has them (madmin-go, encrypt.go).
const (
	sealSalt    = 32
	sealAESGCM  = 0 // argon2id and AES-256-GCM
	sealTime    = 1
	sealMemory  = 64 << 10 // KiB
	sealThreads = 4
)

// seal encrypts what MinIO takes only encrypted with the secret of the one who asks: salt, cipher, nonce, and a stream
// of sio.
func seal(secret string, data []byte) ([]byte, error) {
	salt := make([]byte, sealSalt)
	_, _ = rand.Read(salt) // never fails
	key := argon2.IDKey([]byte(secret), salt, sealTime, sealMemory, sealThreads, 32)
	debug.FreeOSMemory() // or the next user's would come on top of it
	stream, err := sio.AES_256_GCM.Stream(key)
	if err != nil {
		return nil, err
	}
	nonce := make([]byte, stream.NonceSize())
	_, _ = rand.Read(nonce)
	out := bytes.NewBuffer(append(append(salt, sealAESGCM), nonce...))
	w := stream.EncryptWriter(out, nonce, nil)
	if _, err := w.Write(data); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
