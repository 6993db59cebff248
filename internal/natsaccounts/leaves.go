// SPDX-License-Identifier: Apache-2.0

package natsaccounts

import (
	"fmt"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"

	"github.com/substorm/substorm/internal/wire"
)

// Leaves is the account that the servers of leaves link into. It has JetStream, with streams that hold copies of what
// leaves sent, and imports nothing: a leaf can have our server publish to any subject of it, which changes these copies
// and nothing else. SUBSTORM sources from these streams.
const Leaves = "LEAVES"

// copied are what SUBSTORM imports from LEAVES: what it takes to source from a stream of another account.
var copied = []struct {
	name    string
	kind    jwt.ExportType
	subject jwt.Subject
	// local is the subject in SUBSTORM, whose own JetStream has the subject otherwise; "" for the same.
	local jwt.RenamingSubject
}{
	{"leaves-consumer-create", jwt.Service, "$JS.API.CONSUMER.CREATE.>", wire.LeavesAPI + ".CONSUMER.CREATE.>"},
	{"leaves-consumer-delete", jwt.Service, "$JS.API.CONSUMER.DELETE.*.*", wire.LeavesAPI + ".CONSUMER.DELETE.*.*"},
	// Flow control names the subject of its answer, so it keeps its name.
	{"leaves-flow-control", jwt.Service, "$JS.FC.>", ""},
	// The request for a consumer names the subject of delivery, so that keeps its name, too.
	{"leaves-delivery", jwt.Stream, jwt.Subject(wire.CopiedSubjects), ""},
}

// ExportCopies has LEAVES let itself be sourced from by accounts that hold an activation token of it.
func ExportCopies(leaves *jwt.AccountClaims) {
	for _, c := range copied {
		leaves.Exports.Add(&jwt.Export{Name: c.name, Subject: c.subject, Type: c.kind, TokenReq: true})
	}
}

// ImportCopies has SUBSTORM import what the account with the public key leaves exports. Signer is the key of that account,
// or a signing key of it.
func ImportCopies(substorm *jwt.AccountClaims, leaves string, signer nkeys.KeyPair) error {
	for _, c := range copied {
		token, err := activate(substorm.Subject, leaves, signer, c.name, c.subject, c.kind)
		if err != nil {
			return err
		}
		substorm.Imports.Add(&jwt.Import{Name: c.name, Subject: c.subject, LocalSubject: c.local, Account: leaves, Type: c.kind, Token: token})
	}
	return nil
}

// activate returns the token with which the account importer may import a subject that the account exporter exports.
func activate(importer, exporter string, signer nkeys.KeyPair, name string, subject jwt.Subject, kind jwt.ExportType) (string, error) {
	issuer, err := signer.PublicKey()
	if err != nil {
		return "", err
	}
	activation := jwt.NewActivationClaims(importer)
	activation.Name, activation.ImportSubject, activation.ImportType = name, subject, kind
	if issuer != exporter {
		activation.IssuerAccount = exporter
	}
	token, err := activation.Encode(signer)
	if err != nil {
		return "", fmt.Errorf("activate %s: %w", name, err)
	}
	return token, nil
}
