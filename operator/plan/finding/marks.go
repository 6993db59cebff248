// SPDX-License-Identifier: Apache-2.0

package finding

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/substorm/substorm/operator/api/v1alpha1"
)

// Unreadable returns why an object cannot be decoded as a whole; empty for all others. Everything that was made for such an object stays as
// it is: its present declaration is not known.
func Unreadable(o metav1.Object) string { return o.GetAnnotations()[v1alpha1.AnnotationUnreadable] }

// IsStandalone returns whether Standalone.Apply has seen an object.
func IsStandalone(o metav1.Object) bool {
	_, is := o.GetAnnotations()[v1alpha1.AnnotationNotApplied]
	return is
}
