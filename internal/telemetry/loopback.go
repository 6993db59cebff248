// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// CheckLoopbackHost has a handler answer a request that arrived at a loopback address only where its Host is of loopback too: a web page whose
// name was made to resolve to 127.0.0.1 (DNS rebinding) could otherwise read in a browser what is served without credentials. Requests
// that arrived at other addresses pass.
func CheckLoopbackHost(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
		if local != nil && isLoopback(local.String()) && !isLoopback(r.Host) {
			http.Error(w, "this is served on a loopback address, for requests whose Host is 127.0.0.1, ::1 or localhost", http.StatusMisdirectedRequest)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// isLoopback says whether a host, with or without a port, is this computer.
func isLoopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if ip, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return ip.Unmap().IsLoopback()
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	return host == "localhost" || strings.HasSuffix(host, ".localhost") // RFC 6761: resolvers never look these up
}
