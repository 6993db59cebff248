// SPDX-License-Identifier: Apache-2.0

// Package paths says where the checkout and the cache are.
package paths

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

const modulePath = "github.com/substorm/substorm"

// Checkout returns the absolute path of the checkout that holds the working directory.
func Checkout() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the checkout: %w", err)
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		if isCheckout(dir) {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("%s is not in a checkout of %s: change to one and run this again", start, modulePath)
		}
	}
}

func isCheckout(dir string) bool {
	mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		return false
	}
	first, _, _ := strings.Cut(string(mod), "\n")
	return strings.TrimSpace(first) == "module "+modulePath
}

// Cache returns the absolute path of the folder for everything that is costly to make and can be made again:
// $SUBSTORM_CACHE, else $XDG_CACHE_HOME/substorm, else ~/.cache/substorm. It need not exist yet.
func Cache() (string, error) {
	dir := os.Getenv("SUBSTORM_CACHE")
	if dir == "" {
		base := os.Getenv("XDG_CACHE_HOME")
		if base == "" {
			home, err := os.UserHomeDir()
			if err != nil {
				return "", errors.New("no place for the cache: set SUBSTORM_CACHE (or HOME) to a folder outside the checkout")
			}
			base = filepath.Join(home, ".cache")
		}
		dir = filepath.Join(base, "substorm")
	}
	if !filepath.IsAbs(dir) {
		return "", fmt.Errorf("the cache folder %q must be an absolute path: set SUBSTORM_CACHE accordingly", dir)
	}
	return filepath.Clean(dir), nil
}
