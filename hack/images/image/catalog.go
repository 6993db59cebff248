// SPDX-License-Identifier: Apache-2.0

// Package image assembles container images from static binaries, without an engine and without a base image; one also has programs of
// this machine with their libraries. The Dockerfile at the top of the checkout describes the same images for users with an engine; a test
// compares the two.
package image

import (
	"fmt"
	"os"
	"strings"
)

// Image is one image that this checkout can make.
type Image struct {
	Name   string // without tag, such as substorm/operator
	Binary string // what it runs: /<Binary>
	// Package is the folder of the main package that is compiled for it. Else Tool names a part (see hack/parts).
	Package string
	Tool    string
	// Programs of this machine that the program runs: they are in /usr/bin, with their libraries.
	Programs []string

	Title    string
	Source   string
	Licenses string
	// ClusterOnly marks what only hack/cluster and its test need: it is in no Dockerfile and not made by default.
	ClusterOnly bool
	// OffByDefault marks what the charts use only if their values say so. It is made only where it is named: the bridge takes several
	// minutes to compile, as it has Kubernetes' API server in it.
	OffByDefault bool
}

const ourSource, ourLicense = "https://github.com/substorm/substorm", "Apache-2.0"

func program(name, folder, binary, title string) Image {
	return Image{Name: "substorm/" + name, Binary: binary, Package: "./" + folder, Title: title,
		Source: ourSource, Licenses: ourLicense}
}

// All lists the images.
func All() []Image {
	pause := program("pause", "hack/cluster/pause", "pause", "Holds the namespaces of a pod")
	probe := program("probe", "hack/cluster/probe", "probe", "Tries a cluster from inside a pod")
	pause.ClusterOnly, probe.ClusterOnly = true, true
	mirrors := program("mirror-jobs", "mirror-jobs/cmd", "mirror-jobs", "Substorm mirror jobs, with rsync and ssh")
	mirrors.Programs, mirrors.Licenses = []string{"rsync", "ssh"}, "Apache-2.0 AND GPL-3.0-or-later AND BSD-2-Clause"
	bridge := program("metrics-bridge", "metrics-bridge/cmd", "metrics-bridge", "Substorm metrics bridge")
	bridge.OffByDefault = true
	return []Image{
		program("operator", "operator/cmd", "operator", "Substorm operator"),
		program("ingest-gateway", "ingest-gateway/cmd", "ingest-gateway", "Substorm ingest gateway"),
		program("archivist", "archivist/cmd", "archivist", "Substorm archivist"),
		program("feed-server", "feed-server/cmd", "feed-server", "Substorm feed server"),
		mirrors,
		bridge,
		program("cli", "cli/cmd", "substorm", "Substorm command line"),
		{Name: "substorm/nats-server", Binary: "nats-server", Tool: "nats-server", Title: "NATS server",
			Source: "https://github.com/nats-io/nats-server", Licenses: "Apache-2.0"},
		{Name: "substorm/minio", Binary: "minio", Tool: "minio", Title: "MinIO server",
			Source: "https://github.com/minio/minio", Licenses: "AGPL-3.0-or-later"},
		pause,
		probe,
		{Name: "substorm/coredns", Binary: "coredns", Tool: "coredns", Title: "CoreDNS",
			Source: "https://github.com/coredns/coredns", Licenses: "Apache-2.0", ClusterOnly: true},
		{Name: "substorm/metrics-server", Binary: "metrics-server", Tool: "metrics-server", Title: "Kubernetes metrics server",
			Source: "https://github.com/kubernetes-sigs/metrics-server", Licenses: "Apache-2.0", ClusterOnly: true},
	}
}

// Names lists the images that the charts use by default.
func Names() []string {
	var names []string
	for _, i := range All() {
		if !i.ClusterOnly && !i.OffByDefault {
			names = append(names, i.Name)
		}
	}
	return names
}

// Find returns the image of that name, given as substorm/operator or as operator, or an error that lists the names.
func Find(name string) (Image, error) {
	var names []string
	for _, i := range All() {
		if i.Name == name || strings.TrimPrefix(i.Name, "substorm/") == name {
			return i, nil
		}
		names = append(names, i.Name)
	}
	return Image{}, fmt.Errorf("no image is called %q; there are: %s", name, strings.Join(names, ", "))
}

// Tag returns the tag for images: $VERSION, else dev.
func Tag() string {
	if v := os.Getenv("VERSION"); v != "" {
		return v
	}
	return "dev"
}
