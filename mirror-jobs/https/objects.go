// SPDX-License-Identifier: Apache-2.0

package https

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/substorm/substorm/internal/mirrorindex"
	"github.com/substorm/substorm/internal/wire"
)

// bundleFree are the bytes that a bundle may have beside twice those that are expected: headers, and what was added to a day since its
// list was sent.
const bundleFree = 64 << 20

// Objects fetches a bundle, and gives each object to take: by its instrument, its path below
// it, and its ID. It is asked for again where a link breaks: then
// skip says what is not needed any more, and objects that were taken may come again. Errors:
// RefusedError, ErrBroken, of the network, of take. Expected are the bytes of all that is asked for: far more than that is no
// answer to it, and an error.
func (c *Client) Objects(ctx context.Context, site string, questions []mirrorindex.ObjectsQuestion, expected int64, take func(instrument, path, id string, size int64, body io.Reader) error) error {
	r := request{turn: c.bundleTurn, method: http.MethodPost, path: mirrorindex.ObjectsPath, body: body(questions), header: map[string]string{"Content-Type": mirrorindex.MediaLines}}
	return c.do(ctx, r, func(answer *http.Response) error {
		bounded := &io.LimitedReader{R: answer.Body, N: 2*expected + bundleFree}
		err := unpack(bounded, site, take)
		if err != nil && bounded.N <= 0 {
			return malformedError{fmt.Errorf("%s%s sends more than %d MiB, and was asked for objects of %d bytes",
				c.cfg.URL.Redacted(), mirrorindex.ObjectsPath, (2*expected+bundleFree)>>20, expected)}
		}
		return err
	})
}

// unpack gives the objects of a bundle to take.
func unpack(from io.Reader, site string, take func(instrument, path, id string, size int64, body io.Reader) error) error {
	in := tar.NewReader(from)
	for {
		h, err := in.Next()
		if err != nil {
			return malformed(fmt.Errorf("%w: %w", ErrBroken, noEnd(err)))
		}
		name, ours := strings.CutPrefix(h.Name, site+"/")
		if !ours || h.Typeflag != tar.TypeReg {
			return malformed(fmt.Errorf("%w: it has %.100q, which is not below %s/", ErrBroken, h.Name, site))
		}
		if name == mirrorindex.EndName {
			return ends(in)
		}
		instrument, path, _ := strings.Cut(name, "/")
		if err := take(instrument, path, h.PAXRecords[mirrorindex.PAXID], h.Size, broken{in}); err != nil {
			return err
		}
	}
}

// ends reads the last file of a bundle.
func ends(in io.Reader) error {
	var end struct {
		Format int `json:"format"`
	}
	if err := json.NewDecoder(in).Decode(&end); err != nil {
		return malformed(fmt.Errorf("%w: its end: %w", ErrBroken, err))
	}
	if end.Format != mirrorindex.Format {
		return fmt.Errorf("%w (%d, not %d)", mirrorindex.ErrFormat, end.Format, mirrorindex.Format)
	}
	return nil
}

// broken marks the errors of a body, so that they are distinguished from errors of its reader.
type broken struct{ io.Reader }

// Read implements io.Reader.
func (b broken) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, ErrBroken) {
		err = fmt.Errorf("%w: %w", ErrBroken, err)
	}
	return n, err
}

// Part fetches length bytes of a published object from an offset on, and gives them to take. If a link breaks, it
// asks for the rest of the bytes, and calls take again with how many take has had. The object must have the digest.
// Errors: RefusedError, ErrBroken, of the network, of take.
func (c *Client) Part(ctx context.Context, instrument, path string, digest wire.Digest, offset, length int64, take func(had int64, body io.Reader) error) error {
	var had int64
	r := request{turn: c.partTurn, method: http.MethodGet, path: "/archive/" + instrument + "/" + Escaped(path), header: map[string]string{
		"Range": rangeOf(offset, length), "If-Match": `"` + digest.String() + `"`, "Accept-Encoding": "identity",
	}}
	return c.do(ctx, r, func(answer *http.Response) error {
		if answer.StatusCode != http.StatusPartialContent || answer.ContentLength != length-had {
			return malformed(fmt.Errorf("%w: it has status %d and %d bytes, for a range of %d", ErrBroken, answer.StatusCode, answer.ContentLength, length-had))
		}
		err := take(had, counted{broken{answer.Body}, &had})
		if had >= length {
			had = 0
		}
		r.header["Range"] = rangeOf(offset+had, length-had)
		return err
	})
}

func rangeOf(offset, length int64) string {
	return "bytes=" + strconv.FormatInt(offset, 10) + "-" + strconv.FormatInt(offset+length-1, 10)
}

// counted adds up what is read.
type counted struct {
	io.Reader
	n *int64
}

// Read implements io.Reader.
func (c counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	*c.n += int64(n)
	return n, err
}

// Escaped is a path in a URL.
func Escaped(path string) string {
	parts := strings.Split(path, "/")
	for i, part := range parts {
		parts[i] = url.PathEscape(part)
	}
	return strings.Join(parts, "/")
}
