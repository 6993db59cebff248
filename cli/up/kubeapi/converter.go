// SPDX-License-Identifier: Apache-2.0

package kubeapi

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
)

// laterConverter is a TypeConverter that is still being made, beside what else a start does: the schemas of all of Kubernetes' kinds are parsed for
// one, and only the first object that is merged needs it.
type laterConverter struct {
	made      chan struct{}
	converter managedfields.TypeConverter // once made is closed
}

// buildLater begins to make a TypeConverter, and returns one that waits for it.
func buildLater(build func() managedfields.TypeConverter) managedfields.TypeConverter {
	c := &laterConverter{made: make(chan struct{})}
	go func() {
		defer close(c.made)
		c.converter = build()
	}()
	return c
}

// ObjectToTyped implements managedfields.TypeConverter.
func (c *laterConverter) ObjectToTyped(object runtime.Object, options ...typed.ValidationOptions) (*typed.TypedValue, error) {
	<-c.made
	return c.converter.ObjectToTyped(object, options...)
}

// TypedToObject implements managedfields.TypeConverter.
func (c *laterConverter) TypedToObject(value *typed.TypedValue) (runtime.Object, error) {
	<-c.made
	return c.converter.TypedToObject(value)
}
