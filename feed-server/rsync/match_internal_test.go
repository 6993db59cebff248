// SPDX-License-Identifier: Apache-2.0

package rsync

import (
	"errors"
	"strings"
	"testing"
)

// Brackets mean what they do to rsync, also where they have beginnings of classes that are none.
func TestBrackets(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pattern, text string
		want          bool
	}{
		{"[[:digit:]]", "7", true}, {"[[:digit:]]", ":", false}, {"[![:digit:]x]", "a", true}, {"[![:digit:]x]", "x", false},
		{"[[:]", ":", true}, {"[[:]", "[", true}, {"[[:a]", "a", true}, {"[[:digit]", "d", true}, {"[[:digit]:]", "d:]", true},
		{"[[:digit:]", "1", false}, {"[[:nothing:]]", "n", false}, {"[[:[:digit:]]", "5", true}, {"[[:xdigit:]]", "f", true},
		{"[]a]", "]", true}, {`[\]]`, "]", true}, {"[a-c-]", "-", true}, {"[", "[", false}, {"[a", "a", false},
		{"*", "a/b", false}, {"**", "a/b", true}, {"a*", "a", true}, {"a***", "a/b", true}, {"a*", "ab/", false},
	} {
		if got := match(c.pattern, c.text); got != c.want {
			t.Errorf("%s matches %s: %t", c.pattern, c.text, got)
		}
	}
}

// Each byte of a pattern costs a step, as often as it is looked at, and nothing is looked at when none is left.
func TestSteps(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 200)
	for what, pattern := range map[string]string{
		"classes": strings.Repeat("*["+strings.Repeat("[:alpha:]", 60)+"]", 7) + "b", "ranges": strings.Repeat("*["+strings.Repeat("x-z", 330)+"a]", 4) + "b",
		"beginnings of classes": strings.Repeat("*["+strings.Repeat("[:", 500)+"a]", 4) + "b", "stars": strings.Repeat("*a", 20) + "*b",
		"many stars": "*a" + strings.Repeat("*", maxPath-4) + "b",
	} {
		m := matcher{steps: maxSteps}
		if m.match(pattern, long) || !m.spent() || m.steps < -len(pattern) {
			t.Errorf("%s: %d steps are left", what, m.steps)
		}
	}
	m := matcher{steps: maxSteps}
	if bytes := len("[" + strings.Repeat("x-z", 1000) + "a]"); !m.match("["+strings.Repeat("x-z", 1000)+"a]", "a") || m.steps != maxSteps-1-bytes {
		t.Errorf("%d steps for %d bytes", maxSteps-m.steps, bytes)
	}
}

// A filter that takes too long for a name is refused: it is not known what it leaves out.
func TestFilterIsBounded(t *testing.T) {
	t.Parallel()
	var f filter
	var refused *refusal
	if err := f.add("- " + strings.Repeat("*["+strings.Repeat("x-z", 20000)+"a]", 4) + "b"); !errors.As(err, &refused) || !strings.Contains(refused.text, "over-long filter") {
		t.Errorf("a rule of 240 KB: %v", err)
	}
	for range maxRules {
		if err := f.add("- *.jpeg"); err != nil {
			t.Fatal(err)
		}
	}
	if f.excludes("2026/11/24/image-20261124T123456.jpg", false) || f.failed != nil {
		t.Errorf("as many rules as there may be: %v", f.failed)
	}
	f = filter{}
	for _, rule := range []string{"- *.csv", "- " + strings.Repeat("*a", 20) + "*b", "- *.jpg"} {
		if err := f.add(rule); err != nil {
			t.Fatal(err)
		}
	}
	if !f.excludes(strings.Repeat("a", 60)+".csv", false) || f.failed != nil {
		t.Errorf("the first rule decides: %v", f.failed)
	}
	if f.excludes(strings.Repeat("a", 60)+".jpg", false); !errors.As(f.failed, &refused) || !strings.Contains(refused.text, "take too long for the name") {
		t.Errorf("it goes on: %v", f.failed)
	}
}
