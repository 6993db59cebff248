// SPDX-License-Identifier: Apache-2.0

package bare

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// NodeInit is the name of the hidden command that is the first process of a node: NodeInit CLUSTER FOLDER NUMBER.
const NodeInit = "node-init"

const criSocket = "/run/containerd/containerd.sock"

// RunNode is a node's init: it mounts what makes the node a machine of its own, keeps containerd, kube-proxy and kubelet running, and
// reaps orphans, until it is asked to end; with it ends every process of the node.
func RunNode(args []string) error {
	if len(args) != 3 {
		return errors.New(NodeInit + " takes a cluster, its folder and a node's number")
	}
	n, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	if os.Getpid() != 1 {
		return errors.New(NodeInit + " is for the first process of a node: use the command start")
	}
	c := &Cluster{Name: args[0], Dir: args[1]}
	if err := c.load(); err != nil {
		return err
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		<-signals
		os.Exit(0)
	}()
	if err := joinCgroup(c.cgroup(NodeName(n), "system")); err != nil {
		return err
	}
	if err := syscall.Sethostname([]byte(NodeName(n))); err != nil {
		return err
	}
	if err := c.mountNode(n); err != nil {
		return err
	}
	if err := errors.Join(nodeSysctls(), raiseFileLimit()); err != nil {
		return err
	}
	return c.superviseNode(n)
}

// mountNode gives the node a /var, /run and /proc of its own. /var lies on the node's disk and survives a power-off;
// /run does not.
func (c *Cluster) mountNode(n int) error {
	disk := filepath.Join(c.nodeDir(n), "var")
	for _, dir := range []string{"lib/kubelet", "lib/containerd", "lib/cni", "lib/volumes", "log/pods", "log/containers"} {
		if err := os.MkdirAll(filepath.Join(disk, dir), 0o755); err != nil {
			return err
		}
	}
	if err := os.Symlink("/run", filepath.Join(disk, "run")); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	if err := mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return err
	}
	// Programs and configuration lie in the cache: keep it visible when it lies in the /var that is replaced.
	cache := filepath.Dir(filepath.Dir(c.Dir))
	if inside, ok := strings.CutPrefix(cache, "/var/"); ok {
		at := filepath.Join(disk, inside)
		if err := os.MkdirAll(at, 0o755); err != nil {
			return err
		}
		if err := mount(cache, at, "", syscall.MS_BIND, ""); err != nil {
			return err
		}
	}
	if err := mount(disk, "/var", "", syscall.MS_BIND|syscall.MS_REC, ""); err != nil {
		return err
	}
	if err := mount("tmpfs", "/run", "tmpfs", syscall.MS_NOSUID|syscall.MS_NODEV, "mode=0755"); err != nil {
		return err
	}
	for _, dir := range []string{"/run/containerd", "/run/lock", "/run/netns", "/run/cni"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if err := mount("proc", "/proc", "proc", syscall.MS_NOSUID|syscall.MS_NODEV|syscall.MS_NOEXEC, ""); err != nil {
		return err
	}
	// The kubelet's mounts must reach the containers that are shown them.
	return mount("", "/", "", syscall.MS_REC|syscall.MS_SHARED, "")
}

func mount(what, where, kind string, flags uintptr, data string) error {
	if err := syscall.Mount(what, where, kind, flags, data); err != nil {
		return fmt.Errorf("mount %s: %w", where, err)
	}
	return nil
}

// nodeSysctls sets what belongs to the node's network namespace alone.
func nodeSysctls() error {
	for name, value := range map[string]string{
		"net/ipv4/ip_forward":                "1",
		"net/ipv4/conf/all/rp_filter":        "0",
		"net/ipv4/conf/default/rp_filter":    "0",
		"net/ipv6/conf/all/disable_ipv6":     "1",
		"net/ipv6/conf/default/disable_ipv6": "1",
	} {
		err := os.WriteFile(filepath.Join("/proc/sys", name), []byte(value), 0o644)
		if err != nil && !(errors.Is(err, os.ErrNotExist) && strings.HasPrefix(name, "net/ipv6/")) {
			return err
		}
	}
	return nil
}

func raiseFileLimit() error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	limit.Cur = limit.Max
	return syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit)
}

// daemon is a program that runs as long as the node does.
type daemon struct {
	name string
	args []string // the program's path first
}

func (c *Cluster) daemons(n int) ([]daemon, error) {
	name, dir := NodeName(n), c.nodeDir(n)
	containerd, err := exec.LookPath("containerd")
	if err != nil {
		return nil, err
	}
	return []daemon{
		{"containerd", []string{containerd, "--config", filepath.Join(dir, "containerd.toml")}},
		{"kube-proxy", []string{c.rec.Parts["kube-proxy"], "--config", filepath.Join(dir, "kube-proxy.yaml")}},
		{"kubelet", []string{c.rec.Parts["kubelet"], "--config", filepath.Join(dir, "kubelet.yaml"),
			"--kubeconfig", c.pki("kubelet-" + name + ".kubeconfig"), "--hostname-override", name,
			"--node-ip", addresses{c.rec.Base}.node(n), "--root-dir", "/var/lib/kubelet", "--cert-dir", "/var/lib/kubelet/pki"}},
	}, nil
}

// superviseNode starts the daemons and starts one again a second after it ended.
func (c *Cluster) superviseNode(n int) error {
	daemons, err := c.daemons(n)
	if err != nil {
		return err
	}
	running := map[int]daemon{}
	for i, d := range daemons {
		pid, err := c.spawn(n, d)
		if err != nil {
			return err
		}
		running[pid] = d
		if i == 0 {
			waitForSocket(criSocket, 20*time.Second)
		}
	}
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("wait for the daemons: %w", err)
		}
		d, ours := running[pid]
		if !ours {
			continue // an orphan of some container
		}
		delete(running, pid)
		slog.Warn("daemon ended, starting it again", "daemon", d.name, "exit", status.ExitStatus(), "signal", status.Signal())
		time.Sleep(time.Second)
		if pid, err = c.spawn(n, d); err != nil {
			return err
		}
		running[pid] = d
	}
}

func (c *Cluster) spawn(n int, d daemon) (pid int, err error) {
	log, err := c.logFile(NodeName(n) + "-" + d.name)
	if err != nil {
		return 0, err
	}
	defer log.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return 0, err
	}
	defer null.Close()
	pid, err = syscall.ForkExec(d.args[0], d.args, &syscall.ProcAttr{
		Env: os.Environ(), Files: []uintptr{null.Fd(), log.Fd(), log.Fd()}, Sys: &syscall.SysProcAttr{Setpgid: true}})
	if err != nil {
		return 0, fmt.Errorf("start %s: %w", d.name, err)
	}
	return pid, nil
}

// waitForSocket gives the kubelet a containerd to talk to from the start. Without one it would end, and be started again.
func waitForSocket(path string, patience time.Duration) {
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if conn, err := net.Dial("unix", path); err == nil {
			conn.Close()
			return
		}
	}
}
