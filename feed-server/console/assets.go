// SPDX-License-Identifier: Apache-2.0

package console

import (
	"bufio"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"html/template"
	"path"
	"strings"

	"github.com/substorm/substorm/feed-server/endpoint"
	"github.com/substorm/substorm/internal/problem"
)

//go:embed page.html page.css page.js icon.svg
var files embed.FS

var (
	assets = newAssets()
	page   = template.Must(template.New("page.html").ParseFS(files, "page.html"))
)

// asset is a part of the page that changes with the program alone.
type asset struct {
	// name has a part of its bytes' digest, so that it can be kept for ever.
	name, mediaType string
	data            []byte
}

type assetFiles struct {
	// Style, Script and Icon are names.
	Style, Script, Icon string
	// byKind are the assets by what their names begin with.
	byKind map[string]asset
	// tag changes with the page's template and all assets.
	tag string
}

func newAssets() assetFiles {
	all, sum := assetFiles{byKind: map[string]asset{}}, sha256.New()
	add := func(file, mediaType string) string {
		data, _ := files.ReadFile(file) // the compiler saw it
		_, _ = sum.Write(data)
		digest := sha256.Sum256(data)
		ext := path.Ext(file)
		kind := strings.TrimSuffix(file, ext)
		name := kind + "-" + hex.EncodeToString(digest[:6]) + ext
		all.byKind[kind+ext] = asset{name, mediaType, data}
		return name
	}
	all.Style, all.Script, all.Icon = add("page.css", "text/css; charset=utf-8"), add("page.js", "text/javascript; charset=utf-8"), add("icon.svg", "image/svg+xml")
	add("page.html", mediaHTML)
	delete(all.byKind, "page.html")
	all.tag = hex.EncodeToString(sum.Sum(nil)[:8])
	return all
}

// serveAsset answers with a style, script or icon. While pods of two versions of this program
// serve, a client may request an asset of the other version: the answer is this version's asset,
// and no cache may store it.
func serveAsset(v *endpoint.Request) *problem.Problem {
	name := v.PathValue("asset")
	kind, _, _ := strings.Cut(name, "-")
	is, known := assets.byKind[kind+path.Ext(name)]
	if !known {
		return endpoint.NotFound(v.URL.Path)
	}
	cache := "no-store"
	if name == is.name {
		cache = "public, max-age=31536000, immutable"
	}
	v.W.Header().Set("Referrer-Policy", "same-origin")
	return v.Serve(name, endpoint.Document{
		MediaType: is.mediaType, Cache: cache, Policy: "default-src 'none'", Source: []string{is.name},
		Write: func(w *bufio.Writer) error { _, err := w.Write(is.data); return err },
	})
}
