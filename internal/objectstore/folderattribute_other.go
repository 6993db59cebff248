// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package objectstore

import (
	"errors"
	"os"
)

var errNoFolders = errors.New("a folder is an object store on Linux only")

func setAttribute(*os.File, PutOptions) error { return errNoFolders }

func attribute(*os.File) (string, map[string]string, error) { return "", nil, errNoFolders }

func checkAttributes(string) error { return errNoFolders }
