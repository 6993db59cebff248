// SPDX-License-Identifier: Apache-2.0

package metricsbridge_test

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/substorm/substorm/internal/testenv"
)

// TestWhoMayAsk: the bridge believes the API server alone about who asks, and asks it whether they may. A client that reaches its port
// gets no figures without a right, whatever headers and certificates it presents.
func TestWhoMayAsk(t *testing.T) {
	l := startAPI(t)
	operator := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "# TYPE substorm_pool_connections gauge\n")
		for _, in := range []string{namespace, "north"} {
			fmt.Fprintf(w, "substorm_pool_connections{kind=\"FeedServer\",pool=\"demo\",namespace=%q,site=\"demo\"} 7\n", in)
		}
	}))
	t.Cleanup(operator.Close)
	l.operator = operator.URL
	for _, name := range []string{namespace, "north"} {
		l.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	l.startBridge(l.installBridge())
	reader, nobody := l.token("reader"), l.token("nobody")
	l.create(&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "figures"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"external.metrics.k8s.io"}, Resources: []string{"*"}, Verbs: []string{"list"}}}})
	l.create(&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "figures"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "figures"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: "reader", Namespace: namespace}}})
	own := testenv.NewCA(t).Dir(t, "front-proxy-client")
	forged, err := tls.LoadX509KeyPair(filepath.Join(own, "tls.crt"), filepath.Join(own, "tls.key"))
	if err != nil {
		t.Fatal(err)
	}

	eventually(t, "a figure for who may read it", func() error {
		if code := l.asks(namespace, "Bearer "+reader, nil); code != http.StatusOK {
			return fmt.Errorf("the answer is %d", code)
		}
		return nil
	})
	for name, c := range map[string]struct {
		namespace, authorization string
		certificate              *tls.Certificate
	}{
		"nobody, with the headers of the API server":           {namespace, "", nil},
		"a certificate of the same name, of another authority": {namespace, "", &forged},
		"a token that is none":                                 {namespace, "Bearer x", nil},
		"a token without a right":                              {namespace, "Bearer " + nobody, nil},
		"a token with a right elsewhere":                       {"north", "Bearer " + reader, nil},
	} {
		if code := l.asks(c.namespace, c.authorization, c.certificate); code != http.StatusForbidden && code != http.StatusUnauthorized {
			t.Errorf("%s: the answer is %d", name, code)
		}
	}
}

// token is one of a ServiceAccount that is made for it.
func (l *lab) token(name string) string {
	l.t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}
	l.create(account)
	request := &authenticationv1.TokenRequest{}
	if err := l.SubResource("token").Create(l.t.Context(), account, request); err != nil {
		l.t.Fatal(err)
	}
	return request.Status.Token
}

// asks asks the bridge itself, not by way of the API server, and claims to be an administrator in the headers that the API server would set.
func (l *lab) asks(in, authorization string, certificate *tls.Certificate) (status int) {
	l.t.Helper()
	config := &tls.Config{InsecureSkipVerify: true}
	if certificate != nil {
		config.Certificates = []tls.Certificate{*certificate}
	}
	transport := &http.Transport{TLSClientConfig: config}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(l.t.Context(), http.MethodGet, "https://"+l.bridge+"/apis/external.metrics.k8s.io/v1beta1/namespaces/"+in+"/substorm_pool_connections", nil)
	if err != nil {
		l.t.Fatal(err)
	}
	if authorization == "" {
		request.Header.Set("X-Remote-User", "admin")
		request.Header.Set("X-Remote-Group", "system:masters")
	} else {
		request.Header.Set("Authorization", authorization)
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return 0
	}
	response.Body.Close()
	return response.StatusCode
}
