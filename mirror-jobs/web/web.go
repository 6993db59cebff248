// SPDX-License-Identifier: Apache-2.0

// Package web is a web server's folders as a tree to pull: index pages tell what is there, and conditional requests
// (RFC 9110, 13) what changed. It asks no more than robots.txt (RFC 9309) allows.
package web

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math"
	"net/http"
	"net/url"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/temoto/robotstxt"
	"golang.org/x/sync/errgroup"

	"github.com/substorm/substorm/internal/retry"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/mirror-jobs/bound"
	"github.com/substorm/substorm/mirror-jobs/https"
	"github.com/substorm/substorm/mirror-jobs/plan"
	"github.com/substorm/substorm/mirror-jobs/push"
	"github.com/substorm/substorm/mirror-jobs/summary"
	"github.com/substorm/substorm/mirror-jobs/tree"
)

const (
	// Agent is the name that robots.txt calls us by.
	Agent = "substorm-mirror"
	// maxPage bounds what is read of an index page, and maxRobots of robots.txt (RFC 9309, 2.5), in bytes.
	maxPage   = 64 << 20
	maxRobots = 512 << 10
	// maxValidator bounds what is kept of a file to tell whether it changed, in bytes: a server whose validators are longer gives it
	// again each time.
	maxValidator = 256
	// maxDelay is the longest Crawl-delay that is kept.
	maxDelay = time.Minute
	// inMemory is the size up to which a file is kept in memory on its way.
	inMemory = 8 << 20
	// maxFailed files and folders in a row are passed over because the server fails to give them: then it is away as a whole. Each was asked
	// for several times.
	maxFailed = 10
	// settled is how old a change must be for a page that shows minutes to tell it from the next one.
	settled = 2 * time.Minute
)

// Config says which server.
type Config struct {
	Client *https.Client
	// Root is the same server without a path: robots.txt is there.
	Root *https.Client
	// URL of the folder that is pulled.
	URL *url.URL
	// Connections at a time.
	Connections int
	// Scratch is a folder for large files on their way.
	Scratch string
	Limits  tree.Limits
	// Page is how many bytes are read of an index page at most; 0: 64 MiB.
	Page   int64
	Logger *slog.Logger
}

// Source is a tree.Source.
type Source struct {
	cfg    Config
	robots *robotstxt.Group

	mu sync.Mutex
	// next is when the server may be asked again, where it asks for a delay.
	next time.Time
	// failed are how many answers in a row were failures of the server.
	failed int
}

// New returns a source. Its scratch folder is emptied.
func New(cfg Config) (*Source, error) {
	if err := errors.Join(os.RemoveAll(cfg.Scratch), os.MkdirAll(cfg.Scratch, 0o700)); err != nil {
		return nil, err
	}
	cfg.Limits, cfg.Page = cfg.Limits.OrDefault(), cmp.Or(cfg.Page, maxPage)
	s := &Source{cfg: cfg}
	cfg.Client.Redirects(s.follow)
	return s, nil
}

// Walk implements tree.Source.
func (s *Source) Walk(ctx context.Context, visit func(tree.Folder) error) error {
	if err := s.readRobots(ctx); err != nil {
		return wholeProblem(err)
	}
	w := &walk{Source: s, folders: s.cfg.Limits.FoldersOf(s.cfg.URL.Redacted()), log: summary.New(s.cfg.Logger)}
	defer w.log.Flush()
	if err := w.folders.Add(1, tree.Size("")); err != nil {
		return err
	}
	for w.unread = []string{""}; len(w.unread) > 0; { // the deepest first: so few are known at a time
		at := w.unread[len(w.unread)-1]
		w.unread = w.unread[:len(w.unread)-1]
		w.folders.Remove(0, tree.Size(at))
		if !s.isAllowed(at, true) {
			w.log.Add(slog.LevelWarn, "robots.txt asks not to read folders; skipping them", "path", at)
			continue
		}
		found, err := s.page(ctx, at)
		if bound.Is(err) {
			w.refused.Add(err)
			err = nil
		}
		if err == nil && at == "" && len(found) == 0 {
			err = errNothing
		}
		if err != nil && (at == "" || s.isServerWide(err)) {
			return wholeProblem(err)
		}
		if err != nil {
			w.log.Add(slog.LevelWarn, "cannot read folders; skipping them", "path", at, "error", err)
			if failing(err) {
				w.unlisted = cmp.Or(w.unlisted, fmt.Errorf("%w: %w", tree.ErrUnlisted, err))
			}
			continue
		}
		if err := visit(w.sort(at, found)); err != nil {
			return err
		}
	}
	return cmp.Or(w.refused.Err(), w.unlisted)
}

// walk is one through all folders.
type walk struct {
	*Source
	log     *summary.Log
	folders *bound.List
	// unread are the folders that are known and not read yet.
	unread  []string
	refused tree.Refusals
	// unlisted is why a folder was not listed that the server failed to give; nil: all were given.
	unlisted error
}

// sort returns the files that the links of a folder lead to, and notes the folders.
func (w *walk) sort(at string, found []link) tree.Folder {
	folder := tree.Folder{Path: at}
	for _, l := range found {
		name := path.Join(at, l.Name)
		var refusal error
		switch {
		case wire.CheckSentName(name) != nil:
			folder.BadNames = append(folder.BadNames, name)
		case l.Folder:
			if refusal = w.cfg.Limits.CheckDepth(name); refusal == nil {
				refusal = w.folders.Add(1, tree.Size(name))
			}
			if refusal == nil {
				w.unread = append(w.unread, name)
			}
		case !w.isAllowed(name, false):
			w.log.Add(slog.LevelWarn, "robots.txt asks not to read some files; skipping them", "path", name)
		default:
			folder.Files = append(folder.Files, plan.File{Path: name, Size: -1, Mark: l.Mark})
		}
		if refusal != nil {
			w.refused.Add(refusal)
		}
	}
	return folder
}

// errNothing: the page of the folder that is pulled names nothing, as one of a captive portal does.
var errNothing = errors.New("its index page has no link to a file or folder below it: it is empty, or another page came in its place, as from a captive portal or a proxy")

// errAnswer: an answer to a request for a file is none that has one.
var errAnswer = errors.New("it answers")

// failing says whether an error is a failure of the server, which may not fail the next time.
func failing(err error) bool {
	var refused *https.RefusedError
	return errors.Is(err, https.ErrBroken) || errors.As(err, &refused) && refused.Status >= 500
}

// isServerWide says whether an error of a file or a folder, nil for none, is about all of the server.
func (s *Source) isServerWide(err error) bool {
	var refused *https.RefusedError
	isRefused := errors.As(err, &refused)
	if err != nil && !isRefused && !errors.Is(err, https.ErrBroken) && !errors.Is(err, errNoPage) && !errors.Is(err, errAnswer) && !errors.Is(err, errForbidden) && !errors.Is(err, tree.ErrTooLarge) {
		return true // of the network, or ours
	}
	if isRefused && (refused.Status == http.StatusUnauthorized || refused.Status == http.StatusTooManyRequests) {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !failing(err) {
		s.failed = 0
		return false
	}
	s.failed++
	return s.failed >= maxFailed
}

// readRobots reads robots.txt. If there is none, all is allowed; if the server fails, nothing is (RFC 9309, 2.3.1).
func (s *Source) readRobots(ctx context.Context) error {
	var data *robotstxt.RobotsData
	err := s.cfg.Root.Get(ctx, "/robots.txt", nil, func(answer *http.Response) error {
		text, err := io.ReadAll(io.LimitReader(answer.Body, maxRobots))
		if err == nil {
			data, err = robotstxt.FromBytes(text)
		}
		return err
	})
	var refused *https.RefusedError
	if errors.As(err, &refused) && refused.Status < 500 {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read robots.txt, without which nothing may be read: %w", err)
	}
	s.robots = data.FindGroup(Agent)
	return nil
}

// isAllowed says whether robots.txt allows a path.
func (s *Source) isAllowed(name string, folder bool) bool {
	if s.robots == nil {
		return true
	}
	full := strings.TrimSuffix(s.cfg.URL.EscapedPath(), "/") + "/" + https.Escaped(name)
	if folder && name != "" {
		full += "/"
	}
	return s.robots.Test(full)
}

// errForbidden: robots.txt asks not to read a place.
var errForbidden = errors.New("robots.txt asks not to read")

// follow says whether robots.txt allows a place that the server sends us on to.
func (s *Source) follow(to *url.URL) error {
	if s.robots == nil || s.robots.Test(to.RequestURI()) {
		return nil
	}
	return fmt.Errorf("%w %s", errForbidden, to.Redacted())
}

// awaitDelay waits as long as robots.txt asks for between two requests.
func (s *Source) awaitDelay(ctx context.Context) error {
	if s.robots == nil || s.robots.CrawlDelay <= 0 {
		return nil
	}
	s.mu.Lock()
	wait := time.Until(s.next)
	s.next = time.Now().Add(max(0, wait) + min(s.robots.CrawlDelay, maxDelay))
	s.mu.Unlock()
	if wait > 0 && !retry.Sleep(ctx, wait) {
		return ctx.Err()
	}
	return nil
}

// page returns the links of a folder's.
func (s *Source) page(ctx context.Context, at string) (found []link, err error) {
	if err := s.awaitDelay(ctx); err != nil {
		return nil, err
	}
	where := "/"
	if at != "" {
		where += https.Escaped(at) + "/"
	}
	err = s.cfg.Client.Get(ctx, where, map[string]string{"Accept": "text/html"}, func(answer *http.Response) error {
		if mediaType := answer.Header.Get("Content-Type"); !strings.HasPrefix(mediaType, "text/html") {
			return noPage(at, mediaType)
		}
		kept := s.cfg.Limits.FilesOf(at)
		kept.Entry, kept.Refusal.List = "links", bound.Page
		found, err = links(answer.Request.URL, bound.Reader(answer.Body, s.cfg.Page, kept.Refusal), kept)
		return err
	})
	return found, err
}

// Fetch implements tree.Source.
func (s *Source) Fetch(ctx context.Context, files []tree.Wanted, take func(int, tree.Got) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(max(1, s.cfg.Connections))
	for i := range files {
		group.Go(func() error {
			var taken error
			err := s.file(ctx, &files[i], func(got tree.Got) error {
				taken = take(i, got)
				return taken
			})
			switch {
			case taken != nil:
				return taken
			case s.isServerWide(err):
				if disk := (*fs.PathError)(nil); errors.As(err, &disk) {
					return err
				}
				return wholeProblem(err)
			case err != nil:
				return take(i, tree.Got{Err: err})
			default:
				return nil
			}
		})
	}
	return group.Wait()
}

// file asks for one, and gives it to take.
func (s *Source) file(ctx context.Context, w *tree.Wanted, take func(tree.Got) error) error {
	if err := s.awaitDelay(ctx); err != nil {
		return err
	}
	header := map[string]string{}
	if w.Seen.ETag != "" {
		header["If-None-Match"] = w.Seen.ETag
	}
	if w.Seen.Modified != "" {
		header["If-Modified-Since"] = w.Seen.Modified
	}
	var got tree.Got
	var body *kept
	err := s.cfg.Client.Get(ctx, "/"+https.Escaped(w.Path), header, func(answer *http.Response) (err error) {
		body.remove()
		got = tree.Got{Seen: seen(w, answer)}
		if got.Unchanged = answer.StatusCode == http.StatusNotModified; got.Unchanged {
			return nil
		}
		if answer.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: %w %s", w.Path, errAnswer, answer.Status)
		}
		got.MediaType = answer.Header.Get("Content-Type")
		if answer.ContentLength > 0 { // index pages do not tell sizes
			w.Moving.Resize(answer.ContentLength)
		}
		if body, err = s.keep(received{answer.Body, w.Moving}, cmp.Or(w.Most, math.MaxInt64-1)); err == nil && isPage(w.Path, got.MediaType, body.data) {
			body.remove()
			return fmt.Errorf("%s: %w with another file: %w", w.Path, errAnswer, https.ErrPage)
		}
		return err
	})
	defer func() { body.remove() }()
	if err != nil {
		return err
	}
	if body != nil {
		got.Size, got.Open = body.size, body.open
	}
	return take(got)
}

// pageNames are the extensions of names under which a page of HTML may be.
var pageNames = []string{"", ".html", ".htm", ".xhtml", ".shtml", ".php", ".asp", ".aspx", ".jsp", ".cgi"}

// isPage says whether a page came in place of a file whose name is not a page's, as from a captive portal: by what the server says and by
// how it begins.
func isPage(name, mediaType string, begin []byte) bool {
	return strings.HasPrefix(mediaType, "text/html") && !slices.Contains(pageNames, strings.ToLower(path.Ext(name))) &&
		strings.HasPrefix(http.DetectContentType(begin), "text/html")
}

// seen is what tells whether the file of an answer changes. A file that changed just now may change again within the minute
// that an index page shows: then the server is asked.
func seen(w *tree.Wanted, answer *http.Response) tree.Seen {
	validators := tree.Seen{Mark: short(w.Mark), ETag: short(answer.Header.Get("ETag")), Modified: short(answer.Header.Get("Last-Modified"))}
	if answer.StatusCode == http.StatusNotModified {
		validators.ETag, validators.Modified = w.Seen.ETag, w.Seen.Modified
	}
	modified, err := http.ParseTime(validators.Modified)
	now, nowErr := http.ParseTime(answer.Header.Get("Date"))
	if err != nil || nowErr != nil || now.Sub(modified) < settled {
		validators.Mark = ""
	}
	return validators
}

// short is a validator that is kept; empty where it is too long for that.
func short(validator string) string {
	if len(validator) > maxValidator {
		return ""
	}
	return validator
}

// kept is a file on its way, in memory or in scratch.
type kept struct {
	data []byte
	name string
	size int64
}

// received is a body whose errors are those of the connection, and not of our disk.
type received struct {
	io.Reader
	file *push.Moving
}

// Read implements io.Reader.
func (r received) Read(b []byte) (int, error) {
	n, err := r.Reader.Read(b)
	r.file.Move(int64(n))
	if err != nil && !errors.Is(err, io.EOF) {
		err = fmt.Errorf("%w: %w", https.ErrBroken, err)
	}
	return n, err
}

// keep reads a body of so many bytes at most.
func (s *Source) keep(body io.Reader, most int64) (*kept, error) {
	body = io.LimitReader(body, most+1)
	data, err := io.ReadAll(io.LimitReader(body, inMemory+1))
	if int64(len(data)) > most {
		return nil, tree.ErrTooLarge
	}
	if err != nil || len(data) <= inMemory {
		return &kept{data: data, size: int64(len(data))}, err
	}
	file, err := os.CreateTemp(s.cfg.Scratch, "file-*")
	if err != nil {
		return nil, err
	}
	k := &kept{name: file.Name()}
	k.size, err = io.Copy(file, io.MultiReader(bytes.NewReader(data), body))
	if err = errors.Join(err, file.Close()); err == nil && k.size > most {
		err = tree.ErrTooLarge
	}
	if err != nil {
		k.remove()
		return nil, err
	}
	return k, nil
}

func (k *kept) open() (io.ReadCloser, error) {
	if k.name != "" {
		return os.Open(k.name)
	}
	return io.NopCloser(bytes.NewReader(k.data)), nil
}

func (k *kept) remove() {
	if k != nil && k.name != "" {
		_ = os.Remove(k.name) // the folder is emptied by the next run
	}
}

// wholeProblem is an error about all of the server, with a reason.
func wholeProblem(err error) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	reason := https.ReasonOf(err)
	if errors.Is(err, errNoPage) || errors.Is(err, errNothing) {
		reason = wire.MirrorReasonProtocol
	}
	return &push.Problem{Reason: reason, Err: err}
}
