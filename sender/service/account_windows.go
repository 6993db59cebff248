// SPDX-License-Identifier: Apache-2.0

package service

import (
	"fmt"
	"os"

	"golang.org/x/sys/windows"
)

// account runs the service: without --user it is the account that Windows creates for each service,
// which has no password and only the rights that it is granted.
func (s Spec) account() string {
	if s.User != "" {
		return s.User
	}
	return `NT SERVICE\` + s.Name
}

// allow gives the account what the sender needs: the queue, what it watches, secrets.
func (s Spec) allow() error {
	if err := os.MkdirAll(s.Queue, 0o750); err != nil {
		return err
	}
	const change = windows.GENERIC_READ | windows.GENERIC_WRITE | windows.GENERIC_EXECUTE | windows.DELETE
	const read = windows.GENERIC_READ | windows.GENERIC_EXECUTE
	watched := windows.ACCESS_MASK(read)
	if s.Move {
		watched = change
	}
	rights := map[string]windows.ACCESS_MASK{s.Queue: change}
	for _, path := range s.Watch {
		rights[path] = watched
	}
	for _, path := range s.Secrets {
		rights[path] = read
	}
	for path, mask := range rights {
		if err := grant(path, s.account(), mask); err != nil {
			return fmt.Errorf("give %s access to %s: %w", s.account(), path, err)
		}
	}
	return nil
}

// grant adds rights of an account to the existing rights of a file, or of a folder and its content.
func grant(path, account string, mask windows.ACCESS_MASK) error {
	sid, _, _, err := windows.LookupSID("", account)
	if err != nil {
		return err
	}
	is, err := windows.GetNamedSecurityInfo(path, windows.SE_FILE_OBJECT, windows.DACL_SECURITY_INFORMATION)
	if err != nil {
		return err
	}
	was, _, err := is.DACL()
	if err != nil {
		return err
	}
	acl, err := windows.ACLFromEntries([]windows.EXPLICIT_ACCESS{{
		AccessPermissions: mask, AccessMode: windows.GRANT_ACCESS, Inheritance: windows.SUB_CONTAINERS_AND_OBJECTS_INHERIT,
		Trustee: windows.TRUSTEE{TrusteeForm: windows.TRUSTEE_IS_SID, TrusteeType: windows.TRUSTEE_IS_UNKNOWN, TrusteeValue: windows.TrusteeValueFromSID(sid)},
	}}, was)
	if err != nil {
		return err
	}
	return windows.SetNamedSecurityInfo(path, windows.SE_FILE_OBJECT, windows.DACL_SECURITY_INFORMATION, nil, nil, acl, nil)
}
