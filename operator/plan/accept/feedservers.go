// SPDX-License-Identifier: Apache-2.0

package accept

import (
	"github.com/substorm/substorm/operator/api/v1alpha1"
)

// ConsumersServer is the FeedServer whose address FeedConsumers get: the oldest of the Site that has a URL in its spec, else the oldest;
// nil if the Site has none. Tokens are valid at the others too.
func ConsumersServer(servers []v1alpha1.FeedServer) *v1alpha1.FeedServer {
	if addressed := AddressedServer(servers); addressed != nil {
		return addressed
	}
	return oldestServer(servers, func(*v1alpha1.FeedServer) bool { return true })
}

// AddressedServer is the FeedServer at whose URL notifications name objects: the oldest that
// has one. Nil where none has.
func AddressedServer(servers []v1alpha1.FeedServer) *v1alpha1.FeedServer {
	return oldestServer(servers, func(s *v1alpha1.FeedServer) bool { return s.Spec.URL != "" })
}

// oldestServer ignores FeedServers that are being deleted.
func oldestServer(servers []v1alpha1.FeedServer, good func(*v1alpha1.FeedServer) bool) (oldest *v1alpha1.FeedServer) {
	for i := range servers {
		if s := &servers[i]; s.DeletionTimestamp == nil && good(s) && (oldest == nil || OlderFirst(s, oldest) < 0) {
			oldest = s
		}
	}
	return oldest
}
