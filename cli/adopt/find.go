// SPDX-License-Identifier: Apache-2.0

package adopt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dustin/go-humanize"
	"golang.org/x/sync/errgroup"

	"github.com/substorm/substorm/cli/output"
	"github.com/substorm/substorm/internal/objectstore"
	"github.com/substorm/substorm/internal/wire"
	"github.com/substorm/substorm/operator/api/v1alpha1"
)

// lookers is how many objects are asked about at a time.
const lookers = 16

// sender is a sender of data to a port.
type sender struct {
	protocol string
	source   netip.Addr
	port     uint16
}

// found is what a sender sent.
type found struct {
	sender
	items       []wire.Adopted
	bytes       int64
	datagrams   int
	first, last time.Time
	looks       string // "various" where it is not always the same
}

// find reads what lies in the quarantine, as far as the flags ask for it.
func (a *adoption) find(ctx context.Context) ([]*found, error) {
	var mu sync.Mutex
	looked := 0
	bySender := map[sender]*found{}
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(lookers)
	for info, err := range a.store.List(ctx, wire.QuarantinePrefix(a.site), "") {
		if err != nil {
			return nil, errors.Join(err, work.Wait())
		}
		if _, _, ok := wire.ParseQuarantineKey(info.Key); !ok {
			continue
		}
		work.Go(func() error {
			item, from, err := a.readQuarantined(ctx, info.Key)
			if errors.Is(err, objectstore.ErrNotFound) {
				return nil // removed meanwhile
			}
			if err != nil {
				return err
			}
			if !a.matches(from) {
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			looked++
			a.shown.Set(0, 0, "looked at %s of unknown senders", objects(looked))
			if bySender[from] == nil {
				bySender[from] = &found{sender: from, looks: item.Looks, first: item.ReceivedAt}
			}
			bySender[from].add(item)
			return nil
		})
	}
	if err := work.Wait(); err != nil {
		return nil, err
	}
	var all []*found
	for _, f := range bySender {
		slices.SortFunc(f.items, func(a, b wire.Adopted) int { return cmp.Compare(a.From, b.From) })
		all = append(all, f)
	}
	slices.SortFunc(all, func(a, b *found) int {
		return cmp.Or(cmp.Compare(a.port, b.port), a.source.Compare(b.source), cmp.Compare(a.protocol, b.protocol))
	})
	return all, nil
}

func (a *adoption) readQuarantined(ctx context.Context, key string) (wire.Adopted, sender, error) {
	info, err := a.store.Head(ctx, key)
	if err != nil {
		return wire.Adopted{}, sender{}, err
	}
	what, err := wire.QuarantinedFromMetadata(info.Metadata)
	if err != nil {
		return wire.Adopted{}, sender{}, fmt.Errorf("%s: %w", key, err)
	}
	source, err := netip.ParseAddr(what.Source)
	if err != nil {
		var withPort netip.AddrPort
		if withPort, err = netip.ParseAddrPort(what.Source); err != nil {
			return wire.Adopted{}, sender{}, fmt.Errorf("%s: source %q: %w", key, what.Source, wire.ErrMalformed)
		}
		source = withPort.Addr()
	}
	return wire.Adopted{From: key, Quarantined: what}, sender{what.Protocol, source.Unmap(), what.Port}, nil
}

func (f *found) add(item wire.Adopted) {
	f.items = append(f.items, item)
	f.bytes += item.Size
	f.datagrams += item.Datagrams
	first := item.ReceivedAt
	if item.FirstAt != nil {
		first = *item.FirstAt
	}
	if first.Before(f.first) {
		f.first = first
	}
	if item.ReceivedAt.After(f.last) {
		f.last = item.ReceivedAt
	}
	if item.Looks != f.looks {
		f.looks = "various"
	}
}

func table(out io.Writer, all []*found) {
	if len(all) == 0 {
		fmt.Fprintln(out, "The quarantine holds nothing of the kind.")
		return
	}
	w := output.Columns(out, "SOURCE\tPROTOCOL\tPORT\tOBJECTS\tDATAGRAMS\tBYTES\tFIRST\tLAST\tLOOKS LIKE")
	for _, f := range all {
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%s\t%s\t%s\t%s\n", f.source, f.protocol, f.port, len(f.items), f.datagrams,
			humanize.IBytes(uint64(f.bytes)), f.first.UTC().Format(time.RFC3339), f.last.UTC().Format(time.RFC3339), f.looks)
	}
	_ = w.Flush()
}

// manifests prints an Instrument for each sender. It leaves fields that only a person knows to be filled in.
func manifests(out *output.Encoder, all []*found) error {
	for _, f := range all {
		spec := map[string]any{"siteRef": map[string]string{"name": "CHANGE-ME"}, "type": "Unknown", "listeners": []any{
			map[string]any{"name": strings.ToLower(f.protocol), "protocol": f.protocol, "port": f.port, "sources": []string{prefixOf(f.source)}}}}
		if f.protocol == wire.ProtocolTCP && f.looks != "various" && !strings.ContainsAny(f.looks, "; ") {
			spec["archive"] = map[string]string{"mediaType": f.looks}
		}
		err := out.Encode(map[string]any{"apiVersion": v1alpha1.GroupVersion.String(), "kind": "Instrument", "metadata": map[string]string{"name": nameOf(f)}, "spec": spec},
			fmt.Sprintf("# %s, %s from %s to %s; looks like %s. Complete siteRef, type and name.\n",
				objects(len(f.items)), humanize.IBytes(uint64(f.bytes)), f.first.UTC().Format(time.RFC3339), f.last.UTC().Format(time.RFC3339), f.looks))
		if err != nil {
			return err
		}
	}
	return nil
}

func prefixOf(a netip.Addr) string { return netip.PrefixFrom(a, a.BitLen()).String() }

func nameOf(f *found) string {
	address := strings.NewReplacer(".", "-", ":", "-").Replace(f.source.StringExpanded())
	return fmt.Sprintf("from-%s-%s-%d", address, strings.ToLower(f.protocol), f.port)
}
