// SPDX-License-Identifier: Apache-2.0

package web

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/substorm/substorm/bench/internal/process"
)

// clients are the addresses that ask: feed-server limits each of them by itself.
const clients = 4096

// Agent is the browser that asks.
const Agent = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"

// Load is what wrk asks for.
type Load struct {
	Method string
	// Base is the server, http://host:port; paths are asked for in turn.
	Base   string
	Paths  []string
	Header map[string]string
	// Want is the status of every answer.
	Want        int
	Connections int
	During      time.Duration
	// PID of the server; its processor's time is counted.
	PID   int
	Cores []int
}

// Outcome is what wrk saw.
type Outcome struct {
	Requests int64 `json:"requests"`
	Bytes    int64 `json:"bytes"`
	Micros   int64 `json:"micros"`
	Failed   int64 `json:"failed"`
	Others   int64 `json:"others"`
	// CPU that the server used for one request.
	CPU time.Duration `json:"-"`
}

// PerSecond are the answers.
func (o Outcome) PerSecond() float64 { return float64(o.Requests) / (float64(o.Micros) / 1e6) }

// script makes the requests beforehand, so that wrk only sends them. Each connection
// goes through all of them.
const script = `
local requests, n = {}, 0
local threads = {}
others = 0
function setup(thread)
  table.insert(threads, thread)
end
function init(args)
  for i = 0, %d - 1 do
    local paths = {%s}
    local headers = {%s}
    headers["X-Forwarded-For"] = string.format("198.18.%%d.%%d", math.floor(i / 250), i %% 250 + 1)
    requests[i] = wrk.format("%s", paths[i %% #paths + 1], headers)
  end
end
function request()
  n = n + 1
  return requests[n %% %d]
end
function response(status)
  if status ~= %d then others = others + 1 end
end
function done(summary, latency, all)
  local failed, unexpected = summary.errors, 0
  for _, thread in ipairs(threads) do unexpected = unexpected + (thread:get("others") or 0) end
  io.stdout:write(string.format('\n{"requests": %%d, "bytes": %%d, "micros": %%d, "failed": %%d, "others": %%d}\n',
    summary.requests, summary.bytes, summary.duration, failed.connect + failed.read + failed.write + failed.timeout, unexpected))
end
`

// Run runs a load: by wrk, and HEAD by heads, for wrk waits for the bytes that the
// answer to a HEAD only names. Error: where an answer is another than those wanted.
func (l Load) Run(ctx context.Context, t testing.TB) (Outcome, error) {
	var o Outcome
	before, err := process.Time(l.PID)
	if err != nil {
		return o, err
	}
	if l.Method == http.MethodHead {
		o, err = l.heads(t)
	} else {
		o, err = l.wrk(ctx, t)
	}
	if err != nil {
		return o, err
	}
	after, err := process.Time(l.PID)
	if err != nil {
		return o, err
	}
	if o.Requests == 0 || o.Failed > 0 || o.Others > 0 {
		return o, fmt.Errorf("%s %s: of %d requests %d failed, %d were not answered %d", l.Method, l.Base, o.Requests, o.Failed, o.Others, l.Want)
	}
	o.CPU = (after - before) / time.Duration(o.Requests)
	return o, nil
}

func (l Load) wrk(ctx context.Context, t testing.TB) (o Outcome, err error) {
	program, err := exec.LookPath("wrk")
	if err != nil {
		return o, fmt.Errorf("what asks is wrk: install wrk: %w", err)
	}
	file := filepath.Join(t.TempDir(), "load.lua")
	if err := os.WriteFile(file, []byte(l.script()), 0o600); err != nil {
		return o, err
	}
	cmd := exec.CommandContext(ctx, program, "-t1", "-c"+strconv.Itoa(l.Connections), "-d"+strconv.Itoa(max(1, int(l.During/time.Second)))+"s", "-s", file, l.Base)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := process.StartOn(cmd, l.Cores); err != nil {
		return o, err
	}
	if err := cmd.Wait(); err != nil {
		return o, fmt.Errorf("wrk: %w: %s", err, out.String())
	}
	text := strings.TrimSpace(out.String())
	if err := json.Unmarshal([]byte(text[strings.LastIndexByte(text, '\n')+1:]), &o); err != nil {
		return o, fmt.Errorf("wrk: %w: %s", err, text)
	}
	return o, nil
}

func (l Load) script() string {
	var paths, headers []string
	for _, p := range l.Paths {
		paths = append(paths, strconv.Quote(p))
	}
	for name, value := range l.Header {
		headers = append(headers, fmt.Sprintf("[%q] = %q", name, value))
	}
	headers = append(headers, fmt.Sprintf("[%q] = %q", "User-Agent", Agent))
	n := max(clients, len(l.Paths))
	return fmt.Sprintf(script, n, strings.Join(paths, ","), strings.Join(headers, ","), l.Method, n, l.Want)
}
