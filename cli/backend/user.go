// SPDX-License-Identifier: Apache-2.0

package backend

import (
	"bytes"
	"fmt"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"
	corev1 "k8s.io/api/core/v1"

	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/plan"
)

// How long the credentials that a command issues to itself are good for. An
// import of hundreds of terabytes takes days.
const (
	userAge     = time.Hour
	importerAge = 30 * 24 * time.Hour
)

// reader is a JetStream user that reads a Site's ledger, gaps, downloads, registry and names, its gateways' reports,
// cursors and single messages of its streams, and may do nothing else. Its token must fit
// into one line of the protocol, 4 KiB.
func reader(code string) plan.JetStreamUser {
	u := plan.JetStreamUser{Name: "substorm cli", InboxPrefix: "_INBOX_cli_" + code,
		Publish: []string{"$JS.API.INFO", "$JS.API.STREAM.INFO.*", "$JS.FC.>", "$JS.API.DIRECT.GET.KV_" + wire.NamesBucket(code) + ".>"}}
	u.Subscribe = []string{u.InboxPrefix + ".>"}
	for _, bucket := range []string{wire.LedgerBucket(code), wire.StatusBucket(code), wire.RegistryBucket(code),
		wire.GapsBucket(code), wire.DownloadsBucket(code), wire.CursorBucket(code)} {
		u.Publish = append(u.Publish, "$JS.API.DIRECT.GET.KV_"+bucket+".>", "$JS.API.CONSUMER.*.KV_"+bucket+".>")
	}
	for _, stream := range []string{wire.ObservationStream(code), wire.NoticeStream(code)} {
		u.Publish = append(u.Publish, "$JS.API.DIRECT.GET."+stream, "$JS.API.DIRECT.GET."+stream+".>")
	}
	return u
}

// importer is a JetStream user that announces objects of one instrument, writes
// that instrument's ledger, and reads what it takes to do so once.
func importer(code, instrument string) plan.JetStreamUser {
	u := plan.JetStreamUser{Name: "substorm import " + instrument, InboxPrefix: "_INBOX_cli_" + code,
		Publish: []string{"$JS.API.INFO", "$JS.API.STREAM.INFO.*", wire.NoticeSubject(code, instrument),
			"$KV." + wire.LedgerBucket(code) + "." + instrument + ".>", "$KV." + wire.LeaseBucket(code) + "." + wire.ImportLease(instrument)}}
	u.Subscribe = []string{u.InboxPrefix + ".>"}
	streams := []string{wire.NoticeStream(code)}
	for _, bucket := range []string{wire.RegistryBucket(code), wire.CursorBucket(code), wire.LeaseBucket(code), wire.LedgerBucket(code)} {
		streams = append(streams, "KV_"+bucket)
	}
	for _, stream := range streams {
		u.Publish = append(u.Publish, "$JS.API.DIRECT.GET."+stream+".>")
	}
	return u
}

// taker is reader, and may announce what is to become of one instrument's objects.
func taker(code, instrument string) plan.JetStreamUser {
	u := reader(code)
	u.Name = "substorm archive " + instrument
	u.Publish = append(u.Publish, wire.NoticeSubject(code, instrument))
	return u
}

// abandoner is reader, and may write one gateway pod's columns of the ledger and
// remove its report.
func abandoner(code, pod string) plan.JetStreamUser {
	u := reader(code)
	u.Name = "substorm spool abandon " + pod
	u.Publish = append(u.Publish, "$KV."+wire.LedgerBucket(code)+".*.*.*."+pod, "$KV."+wire.StatusBucket(code)+"."+wire.GatewayStatusKey(pod))
	return u
}

// rebuilder is reader, and may say that a Site's index must be made anew from the
// manifests.
func rebuilder(code string) plan.JetStreamUser {
	u := reader(code)
	u.Name = "substorm archive rebuild"
	index := wire.IndexBucket(code)
	u.Publish = append(u.Publish, "$JS.API.DIRECT.GET.KV_"+index+".>", "$KV."+index+"."+wire.IndexListedKey)
	return u
}

// issue makes credentials that are good for so long, with an account's signing key.
func issue(u plan.JetStreamUser, account *corev1.Secret, age time.Duration) ([]byte, error) {
	signer, err := nkeys.FromSeed(bytes.TrimSpace(account.Data[plan.KeyAccountSeed]))
	if err != nil {
		return nil, fmt.Errorf("Secret %s: %s: %w", account.Name, plan.KeyAccountSeed, err)
	}
	defer signer.Wipe()
	user, err := nkeys.CreateUser()
	if err != nil {
		return nil, err
	}
	id, err := user.PublicKey()
	if err != nil {
		return nil, err
	}
	claims := jwt.NewUserClaims(id)
	claims.Name = u.Name
	claims.IssuerAccount = string(bytes.TrimSpace(account.Data[plan.KeyAccountID]))
	claims.Expires = time.Now().Add(age).Unix()
	claims.Permissions.Pub.Allow.Add(u.Publish...)
	claims.Permissions.Sub.Allow.Add(u.Subscribe...)
	if key, err := signer.PublicKey(); err == nil && key == claims.IssuerAccount {
		claims.IssuerAccount = "" // the account's own key, not a signing key
	}
	token, err := claims.Encode(signer)
	if err != nil {
		return nil, fmt.Errorf("Secret %s: sign with %s: %w", account.Name, plan.KeyAccountSeed, err)
	}
	seed, err := user.Seed()
	if err != nil {
		return nil, err
	}
	return jwt.FormatUserConfig(token, seed)
}
