// SPDX-License-Identifier: Apache-2.0

package web

import (
	"errors"
	"fmt"
	"io"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/net/html"

	"github.com/substorm/substorm/mirror-jobs/bound"
	"github.com/substorm/substorm/mirror-jobs/tree"
)

// link is one of an index page, to what lies right below its folder.
type link struct {
	// Name as it is, and not as it is escaped.
	Name   string
	Folder bool
	// Mark is what the page says beside the link, where that holds a date with a time: servers show when a file was
	// changed, and its size.
	Mark string
}

// dated finds the dates of index pages: 17-Mar-2015 12:00 (nginx), 2015-03-17 12:00 (Apache, lighttpd).
var dated = regexp.MustCompile(`\b(\d{4}-\d{2}-\d{2}|\d{1,2}-[A-Z][a-z]{2}-\d{4})[ T]\d{2}:\d{2}`)

const (
	// maxElement bounds an element of a page, a comment, or a text between them, and maxBeside what is read of the text beside a link, in bytes.
	maxElement = 1 << 20
	maxBeside  = 1 << 10
)

// links returns those of a page at an address, which ends with a slash, in the order of their names. Links to anywhere else, to
// the folder above, and those that sort the page are passed over. If the page has more than may be kept, the error is a
// *bound.Error, and the links are those before.
func links(at *url.URL, page io.Reader, kept *bound.List) ([]link, error) {
	found := map[linked]*link{}
	var last *link
	var beside strings.Builder
	end := func() {
		if text := strings.Join(strings.Fields(beside.String()), " "); last != nil && dated.MatchString(text) && len(text) <= maxValidator && kept.Add(0, int64(len(text))) == nil {
			last.Mark = text
		}
		last = nil
		beside.Reset()
	}
	z := html.NewTokenizer(page)
	z.SetMaxBuf(maxElement)
	for {
		switch z.Next() {
		case html.ErrorToken:
			end()
			switch err := z.Err(); {
			case errors.Is(err, io.EOF):
				return sorted(found), nil
			case errors.Is(err, html.ErrBufferExceeded):
				refusal := kept.Refusal
				refusal.Limit = fmt.Sprintf("%d MiB for an element of its page", maxElement>>20)
				return sorted(found), &refusal
			case bound.Is(err):
				return sorted(found), err
			default:
				return nil, err
			}
		case html.StartTagToken:
			t := z.Token()
			if t.Data != "a" {
				continue
			}
			end()
			for _, a := range t.Attr {
				if a.Key != "href" {
					continue
				}
				if l, is := below(at, a.Val); is {
					key := linked{l.Name, l.Folder}
					if found[key] == nil {
						if err := kept.Add(1, tree.Size(at.Path, l.Name)); err != nil {
							return sorted(found), err
						}
						l.Name = strings.Clone(l.Name) // of the address
						key.name = l.Name
						found[key] = &l
					}
					last = found[key]
				}
			}
			z.Next() // the text of the link may be shortened, so it is ignored
			if z.Token().Type == html.StartTagToken {
				last = nil // an icon: the name follows
			}
		case html.TextToken:
			if beside.Len() < maxBeside {
				beside.Write(z.Text())
				beside.WriteByte(' ')
			}
		}
	}
}

// linked is what one link leads to: a page may have a file and a folder of one name.
type linked struct {
	name   string
	folder bool
}

func sorted(found map[linked]*link) []link {
	all := make([]link, 0, len(found))
	for _, l := range found {
		all = append(all, *l)
	}
	slices.SortFunc(all, func(a, b link) int {
		if c := strings.Compare(a.Name, b.Name); c != 0 || a.Folder == b.Folder {
			return c
		}
		if a.Folder {
			return 1
		}
		return -1
	})
	return all
}

// below returns the link that leads right below an address.
func below(at *url.URL, href string) (link, bool) {
	ref, err := parseLink(href)
	if err != nil {
		return link{}, false
	}
	to := at.ResolveReference(ref)
	rest, under := strings.CutPrefix(to.Path, at.Path)
	if to.Scheme != at.Scheme || to.Host != at.Host || to.RawQuery != "" || to.ForceQuery || !under {
		return link{}, false
	}
	name, folder := strings.CutSuffix(rest, "/")
	if name == "" || name == "." || name == ".." || strings.Contains(name, "/") {
		return link{}, false
	}
	return link{Name: name, Folder: folder}, true
}

// strayPercent finds the percent signs that escape nothing.
var strayPercent = regexp.MustCompile(`%([0-9A-Fa-f]{2})?`)

// parseLink reads the address of a link as browsers do (WHATWG URL), also where the server escaped nothing: a name may begin with digits and
// a colon, and a percent sign need not escape anything.
func parseLink(href string) (*url.URL, error) {
	ref, err := url.Parse(href)
	if err == nil {
		return ref, nil
	}
	return url.Parse("./" + strayPercent.ReplaceAllStringFunc(strings.TrimPrefix(href, "./"), func(s string) string {
		if s == "%" {
			return "%25"
		}
		return s
	}))
}

// errNoPage: what a folder's address gives is no page.
var errNoPage = errors.New("it is not an index page (text/html): see that the server lists its folders")

func noPage(path, mediaType string) error {
	return fmt.Errorf("folder %q: it is %q: %w", path, mediaType, errNoPage)
}
