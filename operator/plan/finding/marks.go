// SPDX-License-Identifier: Apache-2.0

package finding

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/substorm/substorm/operator/api/v1alpha1"
)

// Unreadable says why an object cannot be decoded as a whole; empty of all others. What
// was made for such an object stays as it is: nobody knows what it says now.
func Unreadable(o metav1.Object) string { return o.GetAnnotations()[v1alpha1.AnnotationUnreadable] }

// IsStandalone says whether an object is one that Standalone.Apply has seen.
func IsStandalone(o metav1.Object) bool {
	_, is := o.GetAnnotations()[v1alpha1.AnnotationNotApplied]
	return is
}
