// SPDX-License-Identifier: Apache-2.0

package spaceweather

import (
	"errors"
	"fmt"
	"net/http"
	"syscall"

	"github.com/substorm/substorm/internal/egress"
)

var (
	errRedirected = errors.New("redirects")
	errAddress    = errors.New("the name leads to an address that only this cluster or computer can reach, and a public URL must not: " +
		"declare the address itself, or a Service's name that ends in .svc, if that is meant")
)

// redirected lets a server redirect to another path of its own, and from http to https. The declared URL means one server.
func (f *fetcher) redirected(q *http.Request, via []*http.Request) error {
	if len(via) > maxRedirects {
		return fmt.Errorf("%w more than %d times: declare the URL that it leads to", errRedirected, maxRedirects)
	}
	if q.URL.Host != f.url.Host || q.URL.Scheme != f.url.Scheme && q.URL.Scheme != "https" {
		return fmt.Errorf("%w to %s://%s: declare that URL, if it is meant", errRedirected, q.URL.Scheme, q.URL.Host)
	}
	return nil
}

// addressCheck returns the check of each address that a connection is made to, for a declared host. A user who may declare a Site must not get at
// the credentials of the operator's node.
func addressCheck(host string) func(network, address string, _ syscall.RawConn) error {
	may := egress.Host(host)
	return func(network, address string, raw syscall.RawConn) error {
		err := may.Control(network, address, raw)
		if errors.Is(err, egress.ErrNotPublic) {
			err = fmt.Errorf("%w: %w", err, errAddress)
		}
		if err != nil {
			err = fmt.Errorf("%s leads to %w", host, err)
		}
		return err
	}
}
