// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/substorm/substorm/internal/natsaccounts"
)

// upstream gives the link of the one NATS server in this process to one Site.
type upstream struct {
	// link is Config.Link; nil if no server is in this process.
	link func(*natsaccounts.Link) natsaccounts.LinkState

	mu sync.Mutex
	of types.NamespacedName // the Site whose link it is; zero: no Site's
}

// keep has the server link as a Site wants, nil for no link, and returns the state of the link; nil if the Site has none.
func (u *upstream) keep(site types.NamespacedName, want *natsaccounts.Link) *natsaccounts.LinkState {
	u.mu.Lock()
	defer u.mu.Unlock()
	nobodys := u.of == types.NamespacedName{}
	switch {
	case u.link == nil || want == nil && u.of != site:
		return nil
	case want == nil:
		u.link(nil)
		u.of = types.NamespacedName{}
		return nil
	case !nobodys && u.of != site:
		return &natsaccounts.LinkState{Unusable: fmt.Sprintf("this process has one link, and Site %s has it: remove spec.upstream of one of the two", u.of)}
	}
	u.of = site
	state := u.link(want)
	return &state
}
