// SPDX-License-Identifier: Apache-2.0

package rsync

import "strings"

// match reports whether a pattern matches all of a text. A star stands for any bytes but
// slashes, two for any bytes, a question mark for one that is no slash, brackets for one
// of some; behind a backslash stands what is meant by itself.
func match(pattern, text string) bool {
	m := matcher{steps: maxSteps}
	return m.match(pattern, text)
}

const (
	// maxSteps bounds the work for one name, of all patterns together: those with many stars
	// take very long where they do not match. It is enough for maxRules patterns such as *.jpg.
	maxSteps = 1 << 15
	// longestClass is the length of the longest class name in brackets, with its end.
	longestClass = len("xdigit:]")
)

// matcher matches as long as it has steps left, one for each byte of a pattern that it looks at. A match that takes more steps fails, and
// the client gets an error: see spent.
type matcher struct{ steps int }

// spent reports whether there were too few steps, so that it is not known what matches.
func (m *matcher) spent() bool { return m.steps < 0 }

func (m *matcher) match(p, t string) bool {
	for len(p) > 0 {
		if m.steps--; m.steps < 0 {
			return false
		}
		switch p[0] {
		case '*':
			return m.star(p, t)
		case '?':
			if t == "" || t[0] == '/' {
				return false
			}
			p, t = p[1:], t[1:]
		case '[':
			if t == "" || t[0] == '/' {
				return false
			}
			in, rest, ok := class(p, t[0])
			m.steps -= len(p) - len(rest)
			if !ok || !in {
				return false
			}
			p, t = rest, t[1:]
		default:
			if p[0] == '\\' && len(p) > 1 {
				p = p[1:]
			}
			if t == "" || t[0] != p[0] {
				return false
			}
			p, t = p[1:], t[1:]
		}
	}
	return t == ""
}

// star matches a pattern that begins with one.
func (m *matcher) star(p, t string) bool {
	deep, length := strings.HasPrefix(p, "**"), len(p)
	p = strings.TrimLeft(p, "*")
	m.steps -= length - len(p)
	if p == "" {
		return deep || !strings.Contains(t, "/")
	}
	for {
		if m.match(p, t) {
			return true
		}
		if t == "" || !deep && t[0] == '/' || m.steps < 0 {
			return false
		}
		t = t[1:]
	}
}

// class reports whether a byte is in brackets at the beginning of a pattern, and what is
// behind them; not ok: they have no end.
func class(p string, b byte) (in bool, rest string, ok bool) {
	p = p[1:]
	negate := strings.HasPrefix(p, "!") || strings.HasPrefix(p, "^")
	if negate {
		p = p[1:]
	}
	for first := true; p != "" && (first || p[0] != ']'); first = false {
		if name, is := className(p); is {
			in = in || inClass(name, b)
			p = p[len("[:")+len(name)+len(":]"):]
			continue
		}
		from := takeByte(&p)
		to := from
		if len(p) > 1 && p[0] == '-' && p[1] != ']' {
			p = p[1:]
			to = takeByte(&p)
		}
		in = in || from <= b && b <= to
	}
	if p == "" {
		return false, "", false
	}
	return in != negate, p[1:], true
}

// className is the name of a class at the beginning of what is in brackets. It looks no further than a name may be
// long: brackets may contain any number of beginnings of names.
func className(p string) (name string, is bool) {
	if !strings.HasPrefix(p, "[:") {
		return "", false
	}
	p = p[len("[:"):]
	name, _, closed := strings.Cut(p[:min(len(p), longestClass)], "]")
	name, colon := strings.CutSuffix(name, ":")
	return name, closed && colon
}

// takeByte is the next byte that is meant by itself.
func takeByte(p *string) byte {
	if (*p)[0] == '\\' && len(*p) > 1 {
		*p = (*p)[1:]
	}
	b := (*p)[0]
	*p = (*p)[1:]
	return b
}

func inClass(class string, b byte) bool {
	lower, upper, digit := 'a' <= b && b <= 'z', 'A' <= b && b <= 'Z', '0' <= b && b <= '9'
	switch class {
	case "alpha":
		return lower || upper
	case "lower":
		return lower
	case "upper":
		return upper
	case "digit":
		return digit
	case "alnum":
		return lower || upper || digit
	case "xdigit":
		return digit || 'a' <= b && b <= 'f' || 'A' <= b && b <= 'F'
	case "space":
		return b == ' ' || '\t' <= b && b <= '\r'
	case "blank":
		return b == ' ' || b == '\t'
	case "punct":
		return '!' <= b && b <= '~' && !lower && !upper && !digit
	case "print":
		return ' ' <= b && b <= '~'
	case "graph":
		return '!' <= b && b <= '~'
	case "cntrl":
		return b < ' ' || b == 0x7f
	default:
		return false
	}
}
