// SPDX-License-Identifier: Apache-2.0

package web

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/substorm/substorm/mirror-jobs/tree"
)

// The index pages of the servers that there are, cut short.
var pages = map[string]string{
	"nginx": `<html><head><title>Index of /aurora/</title></head><body><h1>Index of /aurora/</h1><hr><pre><a href="../">../</a>
<a href="2015/">2015/</a>                                              17-Mar-2015 12:00                   -
<a href="a%20very%20long%20name.jpg">a very long na..&gt;</a>                                      18-Mar-2015 06:30             1234567
<a href="https://elsewhere.example/x.jpg">x</a>                        18-Mar-2015 06:30                  12
<a href="%C3%B6.txt">ö.txt</a>                                         18-Mar-2015 06:31                  12
</pre><hr></body></html>`,
	"Apache": `<table><tr><th><a href="?C=N;O=D">Name</a></th><th><a href="?C=M;O=A">Last modified</a></th></tr>
<tr><td valign="top"><img src="/icons/back.gif" alt="[PARENTDIR]"></td><td><a href="/">Parent Directory</a></td><td>&nbsp;</td></tr>
<tr><td><a href="2015/"><img src="/icons/folder.gif" alt="[DIR]"></a></td><td><a href="2015/">2015/</a></td><td align="right">2015-03-17 12:00  </td><td align="right">  - </td></tr>
<tr><td><a href="a%20very%20long%20name.jpg"><img src="/icons/image2.gif" alt="[IMG]"></a></td><td><a href="a%20very%20long%20name.jpg">a very long name.jpg</a></td><td align="right">2015-03-18 06:30  </td><td align="right">1.2M</td></tr>
<tr><td><a href="%C3%B6.txt"><img src="/icons/text.gif" alt="[TXT]"></a></td><td><a href="%c3%b6.txt">ö.txt</a></td><td align="right">2015-03-18 06:31  </td><td align="right"> 12 </td></tr></table>`,
	"without dates": `<!doctype html><meta name="viewport" content="width=device-width"><pre>
<a href="2015/">2015/</a>
<a href="./a%20very%20long%20name.jpg">a very long name.jpg</a>
<a href="/aurora/%C3%B6.txt">ö.txt</a>
<a href="2015/17/deeper.jpg">deeper</a> <a href="..%2fup">up</a> <a href="javascript:alert(1)">no</a> <a href="http://[bad/x">bad</a> <a>none</a>
</pre>`,
	"nothing escaped": `<a href="12:00:00.txt">12:00:00.txt</a> <a href="./100%.jpg">100%.jpg</a> <a href="50%25%zz">50%25%zz</a> <a href="../%up">up</a>`,
	"file and folder": `<pre><a href="clash">clash</a> 17-Mar-2015 12:00 5
<a href="clash/">clash/</a> 17-Mar-2015 12:01 -
</pre>`,
}

func TestLinks(t *testing.T) {
	at, err := url.Parse("http://data.old.example/aurora/")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]string{
		"nginx":           {"2015/ 17-Mar-2015 12:00 -", "a very long name.jpg 18-Mar-2015 06:30 1234567", "ö.txt 18-Mar-2015 06:31 12"},
		"Apache":          {"2015/ 2015-03-17 12:00 -", "a very long name.jpg 2015-03-18 06:30 1.2M", "ö.txt 2015-03-18 06:31 12"},
		"without dates":   {"2015/ ", "a very long name.jpg ", "ö.txt "},
		"nothing escaped": {"100%.jpg ", "12:00:00.txt ", "50%%zz "},
		"file and folder": {"clash 17-Mar-2015 12:00 5", "clash/ 17-Mar-2015 12:01 -"},
	}
	for name, page := range pages {
		all, err := links(at, strings.NewReader(page), tree.Limits{}.OrDefault().FilesOf(""))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		var got []string
		for _, l := range all {
			got = append(got, fmt.Sprintf("%s%s %s", l.Name, map[bool]string{true: "/"}[l.Folder], l.Mark))
		}
		if diff := cmp.Diff(want[name], got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// FuzzLinks: whatever a server writes, a link leads right below its page.
func FuzzLinks(f *testing.F) {
	for _, page := range pages {
		f.Add(page)
	}
	at, err := url.Parse("http://data.old.example/aurora/")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, page string) {
		all, err := links(at, strings.NewReader(page), tree.Limits{}.OrDefault().FilesOf(""))
		if err != nil {
			return
		}
		for _, l := range all {
			if l.Name == "" || l.Name == "." || l.Name == ".." || strings.Contains(l.Name, "/") {
				t.Errorf("%+v", l)
			}
		}
	})
}
