// SPDX-License-Identifier: Apache-2.0

// Command probe tries a cluster from inside a pod, for the test of hack/cluster.
//
//	probe serve            answer on TCP 8080 and UDP 8081 with "<start> <ticks> <the caller's address>"
//	probe lookup NAME      print the addresses of a name
//	probe dial ADDRESS     print what a TCP server sends
//	probe connect ADDRESS  connect to a TCP server, no more
//	probe append FILE TEXT append to a file, synced, and print the file
package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "probe:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch strings.Join(args[:min(1, len(args))], "") {
	case "serve":
		return serve()
	case "lookup":
		addresses, err := net.LookupHost(args[1])
		fmt.Println(strings.Join(addresses, " "))
		return err
	case "dial", "connect":
		conn, err := net.DialTimeout("tcp", args[1], 5*time.Second)
		if err != nil {
			return err
		}
		defer conn.Close()
		if args[0] == "dial" {
			_, err = io.Copy(os.Stdout, conn)
		}
		return err
	case "append":
		return appendTo(args[1], args[2])
	}
	return fmt.Errorf("unknown command %q", args)
}

// serve answers until it is asked to end. The start distinguishes one run of the process from the next; the ticks show that it continues.
func serve() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	start := time.Now().UnixNano()
	var ticks atomic.Int64
	go func() {
		for range time.Tick(100 * time.Millisecond) {
			ticks.Add(1)
		}
	}()
	answer := func(caller net.Addr) string { return fmt.Sprintf("%d %d %s\n", start, ticks.Load(), caller) }
	listener, err := net.Listen("tcp4", ":8080")
	if err != nil {
		return err
	}
	packets, err := net.ListenPacket("udp4", ":8081")
	if err != nil {
		return err
	}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			fmt.Fprint(conn, answer(conn.RemoteAddr()))
			conn.Close()
		}
	}()
	go func() {
		for buf := make([]byte, 64); ; {
			_, caller, err := packets.ReadFrom(buf)
			if err != nil {
				return
			}
			if _, err := packets.WriteTo([]byte(answer(caller)), caller); err != nil {
				fmt.Fprintln(os.Stderr, "probe:", err)
			}
		}
	}()
	fmt.Println("serving")
	<-ctx.Done()
	return nil
}

func appendTo(path, text string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := fmt.Fprintln(f, text); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	_, err = io.Copy(os.Stdout, f)
	return err
}
