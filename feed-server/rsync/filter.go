// SPDX-License-Identifier: Apache-2.0

package rsync

import "strings"

const (
	// maxRules and maxRuleBytes bound the filter of one client.
	maxRules     = 1024
	maxRuleBytes = 256 << 10
)

// filter is the list of rules that a client sends: the first that matches a name decides.
type filter struct {
	rules []rule
	// failed is why it cannot be said of some name whether it is excluded.
	failed error
}

type rule struct {
	include, negate bool
	// dirs: only directories match. Whole: the pattern matches all of a name and not only
	// its end. Below: it matches a directory and all in it (***).
	dirs, whole, below bool
	pattern            string
	// wild: the pattern has wildcards. Elements is how many of a name's last elements it
	// matches; 0: all, everywhere where deep is set.
	wild, deep bool
	elements   int
}

// readFilter reads rules until their end. Errors: as input, and a refusal.
func readFilter(in *input) (filter, error) {
	var f filter
	for left := maxRuleBytes; ; {
		length, err := in.int()
		if err != nil || length == 0 {
			return f, err
		}
		if length < 0 || int(length) > left {
			return f, malformed("filter rules of more than %d bytes", maxRuleBytes)
		}
		left -= int(length)
		text := make([]byte, length)
		if err := in.full(text); err != nil {
			return f, err
		}
		if err := f.add(string(text)); err != nil {
			return f, err
		}
	}
}

// add reads a rule as clients send it: a letter, modifiers, a space, and the pattern.
func (f *filter) add(text string) error {
	head, pattern, _ := strings.Cut(text, " ")
	if head == "!" {
		f.rules = nil
		return nil
	}
	if head == "" || pattern == "" {
		return refuse(exitSyntax, "the filter rule %q is not understood here", text)
	}
	var r rule
	switch head[0] {
	case '+':
		r.include = true
	case '-':
	case ':': // rules in files of the source: the archive has none
		if strings.Contains(head, "e") {
			return f.append(rule{}, pattern)
		}
		return nil
	default:
		return refuse(exitSyntax, "the filter rule %q is not understood here", text)
	}
	sends := !strings.Contains(head[1:], "r") || strings.Contains(head[1:], "s")
	for _, modifier := range head[1:] {
		switch modifier {
		case '!':
			r.negate = true
		case 's', 'r', 'p':
		case 'x':
			return nil // it is about extended attributes
		default:
			return refuse(exitSyntax, "the filter rule %q is not understood here: it has modifier %c", text, modifier)
		}
	}
	if !sends { // it restricts what the client may delete
		return nil
	}
	return f.append(r, pattern)
}

func (f *filter) append(r rule, pattern string) error {
	if len(f.rules) == maxRules {
		return refuse(exitSyntax, "there are more than %d filter rules", maxRules)
	}
	if len(pattern) > maxPath { // the client discards longer ones itself
		return refuse(exitSyntax, "over-long filter: the pattern of a rule may have %d bytes", maxPath)
	}
	f.rules = append(f.rules, r.with(pattern))
	return nil
}

// with reads a pattern.
func (r rule) with(pattern string) rule {
	if trimmed := strings.TrimSuffix(pattern, "/"); trimmed != pattern && trimmed != "" {
		r.dirs, pattern = true, trimmed
	}
	if strings.HasPrefix(pattern, "/") {
		r.whole, pattern = true, pattern[1:]
	}
	r.wild = strings.ContainsAny(pattern, "*?[")
	if r.below = strings.HasSuffix(pattern, "/***"); r.below {
		r.dirs = false
		pattern = strings.TrimSuffix(pattern, "*")
	}
	r.pattern = pattern
	switch slashes := strings.Count(pattern, "/"); {
	case strings.Contains(pattern, "**"):
		r.deep = true
	case !r.whole:
		r.elements = slashes + 1
	}
	return r
}

// excludes reports whether a name is not to be sent. If the rules need too many steps for it, failed is set: a rule that
// is left out could have files deleted at the client.
func (f *filter) excludes(name string, dir bool) bool {
	m := matcher{steps: maxSteps}
	defer func() {
		if m.spent() && f.failed == nil {
			f.failed = refuse(exitSyntax, "the filter rules take too long for the name %q: give fewer of them, or with fewer wildcards", name)
		}
	}()
	for i := range f.rules {
		r := &f.rules[i]
		if r.dirs && !dir {
			if r.negate {
				return !r.include
			}
			continue
		}
		if r.matches(&m, name, dir) != r.negate {
			return !r.include
		}
	}
	return false
}

func (r *rule) matches(m *matcher, name string, dir bool) bool {
	if r.below && dir { // the directory itself, too
		name += "/"
	}
	if r.elements > 0 {
		return r.equal(m, last(name, r.elements))
	}
	if r.equal(m, name) {
		return true
	}
	if !r.deep || r.whole {
		return false
	}
	if strings.HasPrefix(r.pattern, "**") { // the slash before the name counts
		return r.equal(m, "/"+name)
	}
	for rest, more := name, true; more; {
		if _, rest, more = strings.Cut(rest, "/"); more && r.equal(m, rest) {
			return true
		}
	}
	return false
}

func (r *rule) equal(m *matcher, name string) bool {
	if !r.wild {
		return name == r.pattern
	}
	return m.match(r.pattern, name)
}

// last are so many elements of a name at its end.
func last(name string, elements int) string {
	for i := len(name) - 1; i >= 0; i-- {
		if name[i] == '/' {
			if elements--; elements == 0 {
				return name[i+1:]
			}
		}
	}
	return name
}
