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
	"github.com/substorm/substorm/operator/plan/bus"
	"github.com/substorm/substorm/operator/plan/workload"
)

// How long the credentials that a command issues to itself are good for. An
// import of hundreds of terabytes takes days.
const (
	userAge     = time.Hour
	importerAge = 30 * 24 * time.Hour
)

// reads are the subjects, under the prefix of JetStream's API, by which a Site's ledger, gaps, downloads, registry,
// names and index are read, its gateways' reports, cursors, and single messages of its streams. A token must fit into one line of
// the protocol, 4 KiB.
func reads(api, code string) []string {
	subjects := []string{api + ".STREAM.INFO.*"}
	streams := []string{wire.ObservationStream(code), wire.NoticeStream(code)}
	for _, bucket := range []string{wire.LedgerBucket(code), wire.StatusBucket(code), wire.RegistryBucket(code), wire.GapsBucket(code),
		wire.DownloadsBucket(code), wire.CursorBucket(code), wire.NamesBucket(code), wire.IndexBucket(code)} {
		streams = append(streams, "KV_"+bucket)
	}
	for _, stream := range streams {
		subjects = append(subjects, api+".DIRECT.GET."+stream, api+".DIRECT.GET."+stream+".>")
	}
	return subjects
}

// newUser is a user with subjects on which it may publish, that gets answers and nothing else.
func newUser(name, code string, publish ...string) bus.JetStreamUser {
	inbox := "_INBOX_cli_" + code
	return bus.JetStreamUser{Name: name, InboxPrefix: inbox, Publish: publish, Subscribe: []string{inbox + ".>"}}
}

// reader only reads.
func reader(code string) CommandUser {
	return CommandUser{"`substorm status`, `archive`", newUser("substorm cli", code, reads(wire.CommandAPI, code)...), true, userAge}
}

// importer announces objects of one instrument, claims its folders, writes that instrument's ledger, and reads what it takes to do so once.
func importer(code, instrument string) CommandUser {
	u := newUser("substorm import "+instrument, code, "$JS.API.STREAM.INFO.*", wire.NoticeSubject(code, instrument), wire.BackfillSubject(code, instrument),
		"$KV."+wire.LedgerBucket(code)+"."+instrument+".>", "$KV."+wire.LeaseBucket(code)+"."+wire.ImportLease(instrument),
		"$KV."+wire.NamesBucket(code)+"."+instrument+".>")
	streams := []string{wire.NoticeStream(code)}
	for _, bucket := range []string{wire.RegistryBucket(code), wire.CursorBucket(code), wire.LeaseBucket(code), wire.LedgerBucket(code), wire.NamesBucket(code)} {
		streams = append(streams, "KV_"+bucket)
	}
	for _, stream := range streams {
		u.Publish = append(u.Publish, "$JS.API.DIRECT.GET."+stream+".>")
	}
	return CommandUser{"`substorm import`", u, false, importerAge}
}

// taker reads, and may request of the archivist that objects of one instrument are retracted, restored or purged. It can
// publish no notice: the archivist publishes what it did.
func taker(code, instrument string) CommandUser {
	subjects := append(reads(wire.CommandAPI, code), wire.RequestSubject(code, instrument))
	return CommandUser{"`substorm archive retract`, `purge`", newUser("substorm archive "+instrument, code, subjects...), true, userAge}
}

// abandoner reads, and may write one gateway pod's columns of the ledger and remove its report.
func abandoner(code, pod string) CommandUser {
	subjects := append(reads("$JS.API", code), "$KV."+wire.LedgerBucket(code)+".*.*.*."+pod, "$KV."+wire.StatusBucket(code)+"."+wire.GatewayStatusKey(pod))
	return CommandUser{"`substorm spool abandon`", newUser("substorm spool abandon "+pod, code, subjects...), false, userAge}
}

// rebuilder reads, and may request that a Site's index is rebuilt from the manifests.
func rebuilder(code string) CommandUser {
	subjects := append(reads("$JS.API", code), "$KV."+wire.IndexBucket(code)+"."+wire.IndexListedKey)
	return CommandUser{"`substorm archive rebuild`", newUser("substorm archive rebuild", code, subjects...), false, userAge}
}

// issue makes credentials that are good for so long, with an account's signing key.
func issue(u bus.JetStreamUser, account *corev1.Secret, age time.Duration) ([]byte, error) {
	signer, err := nkeys.FromSeed(bytes.TrimSpace(account.Data[workload.KeyAccountSeed]))
	if err != nil {
		return nil, fmt.Errorf("Secret %s: %s: %w", account.Name, workload.KeyAccountSeed, err)
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
	claims.IssuerAccount = string(bytes.TrimSpace(account.Data[workload.KeyAccountID]))
	claims.Expires = time.Now().Add(age).Unix()
	claims.Permissions.Pub.Allow.Add(u.Publish...)
	claims.Permissions.Sub.Allow.Add(u.Subscribe...)
	if key, err := signer.PublicKey(); err == nil && key == claims.IssuerAccount {
		claims.IssuerAccount = "" // the account's own key, not a signing key
	}
	token, err := claims.Encode(signer)
	if err != nil {
		return nil, fmt.Errorf("Secret %s: sign with %s: %w", account.Name, workload.KeyAccountSeed, err)
	}
	seed, err := user.Seed()
	if err != nil {
		return nil, err
	}
	return jwt.FormatUserConfig(token, seed)
}

// CommandUser is the JetStream user that a command issues to itself.
type CommandUser struct {
	// Name of the command.
	Name string
	User bus.JetStreamUser
	// OfCommands: the user is of the account COMMANDS. Those that write are of the account with the streams.
	OfCommands bool
	// age is how long its credentials are valid.
	age time.Duration
}

// Users are all that commands issue to themselves: for a Site, for an instrument of it, and for a pod of its gateways.
func Users(code, instrument, pod string) []CommandUser {
	return []CommandUser{
		reader(code),
		taker(code, instrument),
		rebuilder(code),
		abandoner(code, pod),
		importer(code, instrument),
	}
}

// user is the one that a command with these options takes.
func (o Options) user(code string) CommandUser {
	switch {
	case o.ImportFor != "":
		return importer(code, o.ImportFor)
	case o.ChangesOf != "":
		return taker(code, o.ChangesOf)
	case o.AbandonPod != "":
		return abandoner(code, o.AbandonPod)
	case o.Rebuild:
		return rebuilder(code)
	}
	return reader(code)
}
