// SPDX-License-Identifier: Apache-2.0

package quickstart

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
)

// The first answer may take firstAnswer, and the next of another server answersPause after it.
const (
	firstAnswer  = 30 * time.Second
	answersPause = 2 * time.Second
)

// updated is what a server says that has replaced an account's token.
const updated = "jwt updated"

// Announce tells all servers of a cluster the tokens of accounts, as a user of the system account. Servers end the
// connections of users that are revoked there. There should be so many servers. It returns an error that names the
// servers that did not take a token, and tells the others all the same.
//
// A server whose configuration has the accounts (resolver MEMORY) keeps an account's token only once it has loaded the
// account, which it does when a user of it connects; until then it would skip the token and go by its configuration.
// So each is made to load the account first: it does when it is asked for the account's connections.
func Announce(ctx context.Context, nc *nats.Conn, accounts map[string]string, servers int, out io.Writer) error {
	there, err := request(ctx, nc, "$SYS.REQ.SERVER.PING", nil, nil)
	if err != nil {
		return err
	}
	var problems []error
	if len(there) < servers {
		problems = append(problems, fmt.Errorf("%d of %d servers have answered: the others get no update", len(there), servers))
	}
	for _, id := range slices.Sorted(maps.Keys(accounts)) {
		if _, err := request(ctx, nc, "$SYS.REQ.ACCOUNT."+id+".CONNZ", []byte(`{"limit":1}`), there); err != nil {
			return err
		}
		answers, err := request(ctx, nc, "$SYS.REQ.ACCOUNT."+id+".CLAIMS.UPDATE", []byte(accounts[id]), there)
		if err != nil {
			return err
		}
		for _, server := range slices.Sorted(maps.Keys(there)) {
			if err := answers[server].verdict(there[server].Server.Name, id); err != nil {
				problems = append(problems, err)
				continue
			}
			fmt.Fprintf(out, "server %s, account %s: %s\n", there[server].Server.Name, id, updated)
		}
	}
	return errors.Join(problems...)
}

// answer is what a server says to a request to the system account.
type answer struct {
	Server struct {
		ID   string `json:"id"`
		Name string `json:"name"`
	} `json:"server"`
	Data struct {
		Message string `json:"message"`
	} `json:"data"`
	Error *struct {
		Description string `json:"description"`
	} `json:"error"`
}

// verdict is an error where a server did not take an account's token.
func (a *answer) verdict(server, account string) error {
	switch {
	case a == nil:
		return fmt.Errorf("server %s has not confirmed the update of account %s", server, account)
	case a.Error != nil:
		return fmt.Errorf("server %s does not accept the update of account %s: %s", server, account, a.Error.Description)
	case a.Data.Message != updated:
		return fmt.Errorf("server %s does not accept the update of account %s: %s", server, account, a.Data.Message)
	}
	return nil
}

// request asks all servers, and returns their answers by their ids: when all of those that are there have answered, or
// when no more answers come.
func request(ctx context.Context, nc *nats.Conn, subject string, data []byte, there map[string]*answer) (map[string]*answer, error) {
	inbox, err := nc.SubscribeSync(nc.NewInbox())
	if err != nil {
		return nil, err
	}
	defer func() { _ = inbox.Unsubscribe() }()
	if err := nc.PublishRequest(subject, inbox.Subject, data); err != nil {
		return nil, err
	}
	answers := map[string]*answer{}
	for pause := firstAnswer; there == nil || len(answers) < len(there); pause = answersPause {
		wait, cancel := context.WithTimeout(ctx, pause)
		message, err := inbox.NextMsgWithContext(wait)
		cancel()
		switch {
		case err != nil && len(answers) > 0 && ctx.Err() == nil:
			return answers, nil // no more come
		case err != nil:
			return nil, fmt.Errorf("no server has answered %s: %w", subject, err)
		}
		var a answer
		if err := json.Unmarshal(message.Data, &a); err != nil {
			return nil, fmt.Errorf("answer of a server to %s: %w", subject, err)
		}
		answers[a.Server.ID] = &a
	}
	return answers, nil
}
