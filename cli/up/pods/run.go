// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/substorm/substorm/internal/retry"
)

// lookEvery is how often everything is looked at without an event: a watch that broke may have missed one.
const lookEvery = time.Minute

// settle is how long events are gathered before one look at everything.
const settle = 20 * time.Millisecond

// Config of Run.
type Config struct {
	Client client.WithWatch
	// Folder is where volumes and mounted Secrets lie.
	Folder string
	// Host is the address at which pods receive; empty: all addresses of this computer.
	Host string
	// Programs by the names of their containers. Pods of others are not run.
	Programs map[string]Program
	// Apart are programs that run in processes of their own: if one of them hangs, this process continues, and ends it as a liveness
	// probe does.
	Apart []string
	// Override returns arguments that come after those of the container, and so win.
	Override func(Started) []string
	// Last are the programs that are stopped after all others.
	Last []string
	Log  *slog.Logger
}

// Started is a program that is about to be started in a pod. Health is the address at which it is to serve health and metrics.
type Started struct {
	Program string
	Name    types.NamespacedName
	Health  string
	// Arguments are the planned ones.
	Arguments []string
}

// Pods are the pods of this process.
type Pods struct {
	cfg  Config
	wake chan struct{}

	mu      sync.Mutex
	running map[types.NamespacedName]*process
	// looked: the workloads that there are were looked at, and their programs are begun.
	looked bool
}

// New returns pods; none runs yet.
func New(cfg Config) *Pods {
	return &Pods{cfg: cfg, wake: make(chan struct{}, 1), running: map[types.NamespacedName]*process{}}
}

// Run follows the workloads until ctx ends, and then stops their programs.
func (p *Pods) Run(ctx context.Context) {
	p.clear(filepath.Join(p.cfg.Folder, podsFolder))             // of a process that was killed
	alive, end := context.WithCancel(context.WithoutCancel(ctx)) // what runs ends in order, below
	defer end()
	for _, list := range []client.ObjectList{&appsv1.StatefulSetList{}, &appsv1.DeploymentList{}, &batchv1.JobList{}, &corev1.SecretList{}} {
		go p.follow(ctx, list)
	}
	for {
		if err := p.reconcile(ctx, alive); err != nil && ctx.Err() == nil {
			p.cfg.Log.Warn("cannot reconcile the workloads; retrying", "error", err)
			p.changedSoon(ctx)
		}
		select {
		case <-ctx.Done():
			p.stopAll()
			return
		case <-p.wake:
			retry.Sleep(ctx, settle)
		case <-time.After(lookEvery):
		}
	}
}

func (p *Pods) changedSoon(ctx context.Context) {
	go func() {
		retry.Sleep(ctx, time.Second)
		p.changed()
	}()
}

// changed has everything looked at.
func (p *Pods) changed() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// follow notes each change of a kind.
func (p *Pods) follow(ctx context.Context, list client.ObjectList) {
	for ctx.Err() == nil {
		w, err := p.cfg.Client.Watch(ctx, list)
		if err != nil {
			retry.Sleep(ctx, time.Second)
			continue
		}
		p.changed()
		for event := range w.ResultChan() {
			if event.Type == watch.Error {
				break
			}
			p.changed()
		}
		w.Stop()
	}
}

// reconcile brings what runs in line with the workloads, and says what is seen.
func (p *Pods) reconcile(ctx, alive context.Context) error {
	var sets appsv1.StatefulSetList
	var deployments appsv1.DeploymentList
	var jobs batchv1.JobList
	var secrets corev1.SecretList
	for _, list := range []client.ObjectList{&sets, &deployments, &jobs, &secrets} {
		if err := p.cfg.Client.List(ctx, list); err != nil {
			return err
		}
	}
	known := map[string]map[string]map[string][]byte{}
	for i := range secrets.Items {
		s := &secrets.Items[i]
		if known[s.Namespace] == nil {
			known[s.Namespace] = map[string]map[string][]byte{}
		}
		known[s.Namespace][s.Name] = s.Data
	}
	var all []workload
	for i := range sets.Items {
		all = append(all, ofSet(&sets.Items[i]))
	}
	for i := range deployments.Items {
		all = append(all, ofDeployment(&deployments.Items[i]))
	}
	lasting, failed := p.expireJobs(ctx, jobs.Items, time.Now())
	for i := range lasting {
		all = append(all, ofJob(&lasting[i]))
	}
	wanted := map[types.NamespacedName]bool{}
	for _, w := range all {
		if w.meta.DeletionTimestamp != nil || w.replicas == 0 {
			continue
		}
		wanted[w.podName()] = true
		amiss := p.ensure(alive, w, known[w.meta.Namespace])
		if err := p.report(ctx, w, amiss); err != nil {
			failed = fmt.Errorf("%s %s: %w", w.kind, w.meta.Name, err)
		}
	}
	for _, w := range all {
		if !wanted[w.podName()] {
			p.end(w.podName())
			if err := p.report(ctx, w, nil); err != nil {
				failed = err
			}
		}
	}
	p.mu.Lock()
	p.looked = true
	p.mu.Unlock()
	return p.endOthers(ctx, wanted, failed)
}

// Lacks says which programs are not ready now, whatever the status of their workloads says, which may be of an earlier process.
func (p *Pods) Lacks() (lacks []string) {
	p.mu.Lock()
	looked := p.looked
	p.mu.Unlock()
	if !looked {
		return []string{"its programs"}
	}
	for name, running := range p.all() {
		if now := running.currentState(); !now.ready && !running.pod.once {
			lacks = append(lacks, strings.TrimSuffix(fmt.Sprintf("pod %q: %s", name.Name, now.failed), ": "))
		}
	}
	slices.Sort(lacks)
	return lacks
}

// endOthers stops pods whose workloads are gone.
func (p *Pods) endOthers(ctx context.Context, wanted map[types.NamespacedName]bool, failed error) error {
	p.mu.Lock()
	var others []types.NamespacedName
	for name := range p.running {
		if !wanted[name] {
			others = append(others, name)
		}
	}
	p.mu.Unlock()
	for _, name := range others {
		p.end(name)
		if err := p.forget(ctx, name); err != nil {
			failed = err
		}
	}
	return failed
}

// ensure has the pod of a workload run as the workload says now. The error says what it lacks; what runs stays then.
func (p *Pods) ensure(ctx context.Context, w workload, secrets map[string]map[string][]byte) error {
	wanted, err := newPod(p.cfg.Folder, w, secrets)
	if err != nil {
		return err
	}
	program, known := p.cfg.Programs[wanted.program]
	if !known {
		return fmt.Errorf("container %q is not a program of this process", wanted.program)
	}
	if running := p.of(wanted.name); running != nil {
		if running.pod.revision == wanted.revision {
			return running.mount(wanted.files)
		}
		p.end(wanted.name)
	}
	next := &process{pod: wanted, program: program, override: p.cfg.Override, log: p.cfg.Log, changed: p.changed}
	if slices.Contains(p.cfg.Apart, wanted.program) {
		next.silence = maxSilence
	}
	p.mu.Lock()
	p.running[wanted.name] = next
	p.mu.Unlock()
	next.start(ctx)
	return nil
}

func (p *Pods) of(name types.NamespacedName) *process {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.running[name]
}

// clear removes a folder that is made again when it is needed: Secrets are in it, and nothing else removes them.
func (p *Pods) clear(folder string) {
	if err := os.RemoveAll(folder); err != nil {
		p.cfg.Log.Warn("cannot remove files of pods; they stay, Secrets among them", "error", err)
	}
}

// end stops a pod, waits until it has ended and removes its files.
func (p *Pods) end(name types.NamespacedName) {
	running := p.of(name)
	if running == nil {
		return
	}
	running.stop()
	<-running.done
	p.clear(filesOf(p.cfg.Folder, name))
	p.mu.Lock()
	delete(p.running, name)
	p.mu.Unlock()
}

// stopAll stops all pods, those of the programs in Config.Last after the others.
func (p *Pods) stopAll() {
	for _, last := range []bool{false, true} {
		var group sync.WaitGroup
		for name, running := range p.all() {
			if slices.Contains(p.cfg.Last, running.pod.program) == last {
				group.Go(func() { p.end(name) })
			}
		}
		group.Wait()
	}
}

func (p *Pods) all() map[types.NamespacedName]*process {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := map[types.NamespacedName]*process{}
	for name, running := range p.running {
		all[name] = running
	}
	return all
}

// Health are the addresses at which programs serve health and metrics, by the names of their pods.
func (p *Pods) Health() map[types.NamespacedName]string {
	all := map[types.NamespacedName]string{}
	for name, running := range p.all() {
		if at := running.currentState().health; at != "" {
			all[name] = at
		}
	}
	return all
}

// Alive returns an error if a running program does not answer before ctx ends, or says that it cannot continue. A program that has ended,
// and is started again, causes no error, nor does one that does not listen yet, nor one that runs apart.
func (p *Pods) Alive(ctx context.Context) error {
	for name, running := range p.all() {
		at := running.currentState().health
		if at == "" || slices.Contains(p.cfg.Apart, running.pod.program) {
			continue
		}
		if err := answers(ctx, at); err != nil {
			return fmt.Errorf("the program of pod %s: %w", name, err)
		}
	}
	return nil
}

func answers(ctx context.Context, health string) error {
	body, err := Ask(ctx, health, "/healthz")
	if errors.Is(err, syscall.ECONNREFUSED) {
		return nil
	}
	if err != nil {
		return err
	}
	return body.Close()
}

// programs keeps no connections: a program that is started again has another address.
var programs = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// Ask asks a program at its address of Health for a path. An answer other than 200 is an error.
func Ask(ctx context.Context, health, path string) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+health+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := programs.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
		return nil, errors.Join(fmt.Errorf("%s: %s", resp.Status, bytes.TrimSpace(text)), resp.Body.Close())
	}
	return resp.Body, nil
}
