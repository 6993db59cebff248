// SPDX-License-Identifier: Apache-2.0

package backend

import (
	"time"

	"github.com/substorm/substorm/operator/plan"
)

// CommandUser is the JetStream user that a command issues to itself.
type CommandUser struct {
	// Name of the command.
	Name string
	User plan.JetStreamUser
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
	case o.TakeBackFrom != "":
		return taker(code, o.TakeBackFrom)
	case o.AbandonPod != "":
		return abandoner(code, o.AbandonPod)
	case o.Rebuild:
		return rebuilder(code)
	}
	return reader(code)
}
