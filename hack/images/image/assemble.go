// SPDX-License-Identifier: Apache-2.0

package image

import (
	"archive/tar"
	"bytes"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// nonroot is the user and group that every image runs as.
const nonroot = 65532

// bundles are the places where distributions keep the certificates of the public authorities.
var bundles = []string{"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"}

// assemble returns the image: a layer that all images share and one with the binary, both with every date at zero.
func (i Image) assemble(rootfs, binary, version string) (v1.Image, error) {
	base, err := baseLayer(rootfs)
	if err != nil {
		return nil, err
	}
	body, err := os.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	var program layer
	program.file(i.Binary, 0o755, body)
	layers := []*layer{base, &program}
	if len(i.Programs) > 0 {
		host, err := hostLayer(i.Programs)
		if err != nil {
			return nil, fmt.Errorf("image %s: %w", i.Name, err)
		}
		layers = []*layer{base, host, &program}
	}
	img := empty.Image
	for _, l := range layers {
		if img, err = mutate.AppendLayers(img, l.layer()); err != nil {
			return nil, err
		}
		if l.err != nil {
			return nil, l.err
		}
	}
	return mutate.ConfigFile(img, i.config(img, version))
}

func (i Image) config(img v1.Image, version string) *v1.ConfigFile {
	config, err := img.ConfigFile()
	if err != nil { // of an image made in memory: only what AppendLayers reported already
		config = &v1.ConfigFile{}
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", runtime.GOARCH
	config.Created = v1.Time{Time: time.Unix(0, 0).UTC()}
	config.Config = v1.Config{
		Entrypoint: []string{"/" + i.Binary},
		User:       fmt.Sprintf("%d:%d", nonroot, nonroot),
		WorkingDir: "/",
		Env:        []string{"PATH=" + i.path()},
		Labels: map[string]string{
			"org.opencontainers.image.title":    i.Title,
			"org.opencontainers.image.source":   i.Source,
			"org.opencontainers.image.licenses": i.Licenses,
			"org.opencontainers.image.version":  version,
		},
	}
	return config
}

// path is where programs are looked for.
func (i Image) path() string {
	if len(i.Programs) > 0 {
		return "/:/usr/bin"
	}
	return "/"
}

// baseLayer holds what a static program may ask for: users, certificates, a place for temporary files.
func baseLayer(rootfs string) (*layer, error) {
	var certificates []byte
	for _, name := range bundles {
		if body, err := os.ReadFile(name); err == nil {
			certificates = body
			break
		}
	}
	if certificates == nil {
		return nil, fmt.Errorf("no certificate bundle in %v: install the package ca-certificates", bundles)
	}
	l := &layer{}
	l.dir("tmp", 0o1777)
	for _, dir := range []string{"etc", "etc/ssl", "etc/ssl/certs"} {
		l.dir(dir, 0o755)
	}
	for _, name := range []string{"passwd", "group"} {
		body, err := os.ReadFile(filepath.Join(rootfs, "etc", name))
		if err != nil {
			return nil, err
		}
		l.file(path.Join("etc", name), 0o644, body)
	}
	l.file("etc/ssl/certs/ca-certificates.crt", 0o644, certificates)
	return l, nil
}

// layer is a tar in the making. The first error is kept and later calls do nothing.
type layer struct {
	buf bytes.Buffer
	tar *tar.Writer
	err error
}

func (l *layer) dir(name string, mode int64) {
	l.add(&tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: mode}, nil)
}

func (l *layer) file(name string, mode int64, body []byte) {
	l.add(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(body))}, body)
}

func (l *layer) add(header *tar.Header, body []byte) {
	if l.tar == nil {
		l.tar = tar.NewWriter(&l.buf)
	}
	header.ModTime = time.Unix(0, 0)
	if l.err == nil {
		l.err = l.tar.WriteHeader(header)
	}
	if l.err == nil {
		_, l.err = l.tar.Write(body)
	}
}

// layer closes the tar. It stays uncompressed: it is loaded on the machine where it is made.
func (l *layer) layer() v1.Layer {
	if l.err == nil {
		l.err = l.tar.Close()
	}
	return static.NewLayer(l.buf.Bytes(), types.DockerUncompressedLayer)
}
