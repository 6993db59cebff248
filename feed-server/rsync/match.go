// SPDX-License-Identifier: Apache-2.0

package rsync

import "strings"

// match says whether a pattern matches all of a text. A star stands for any bytes but
// slashes, two for any bytes, a question mark for one that is no slash, brackets for one
// of some; behind a backslash stands what is meant by itself.
func match(pattern, text string) bool {
	m := matcher{steps: maxSteps}
	return m.match(pattern, text)
}

// matcher matches as long as it has steps left: what takes more does not match.
type matcher struct{ steps int }

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
	deep := strings.HasPrefix(p, "**")
	p = strings.TrimLeft(p, "*")
	for {
		if p == "" && (deep || !strings.Contains(t, "/")) {
			return true
		}
		if m.match(p, t) {
			return true
		}
		if t == "" || !deep && t[0] == '/' || m.steps < 0 {
			return false
		}
		t = t[1:]
	}
}

// class says whether a byte is in brackets at the beginning of a pattern, and what is
// behind them; not ok: they have no end.
func class(p string, b byte) (in bool, rest string, ok bool) {
	p = p[1:]
	negate := strings.HasPrefix(p, "!") || strings.HasPrefix(p, "^")
	if negate {
		p = p[1:]
	}
	for first := true; p != "" && (first || p[0] != ']'); first = false {
		if name, after, is := strings.Cut(strings.TrimPrefix(p, "[:"), ":]"); is && strings.HasPrefix(p, "[:") {
			in = in || inClass(name, b)
			p = after
			continue
		}
		from := take(&p)
		to := from
		if len(p) > 1 && p[0] == '-' && p[1] != ']' {
			p = p[1:]
			to = take(&p)
		}
		in = in || from <= b && b <= to
	}
	if p == "" {
		return false, "", false
	}
	return in != negate, p[1:], true
}

// take is the next byte that is meant by itself.
func take(p *string) byte {
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
