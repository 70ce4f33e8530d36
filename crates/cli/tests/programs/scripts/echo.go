// echo server | echo client PORT | echo relay PORT: an echo server (it prints its port), and its client with eight
// connections: messages in step, then a stream whose writer does not wait for its reader, all compared. `relay` is a
// server that is itself a client: it passes each connection on to PORT. The client prints "payload N".
package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand"
	"net"
	"os"
	"sync"
)

const connections, messages, stream = 8, 500, 8 << 20

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func client(address string, seed int64) int64 {
	c, err := net.Dial("tcp", address)
	check(err)
	rng := rand.New(rand.NewSource(seed))
	noise := make([]byte, 1<<20)
	rng.Read(noise)
	var payload int64
	sizes := []int{1, 64, 1400, 5000, 30000}
	for n := 0; n < messages; n++ {
		size := sizes[rng.Intn(len(sizes))]
		sent := noise[n : n+size]
		_, err := c.Write(sent)
		check(err)
		got := make([]byte, size)
		_, err = io.ReadFull(c, got)
		check(err)
		if !bytes.Equal(sent, got) {
			check(fmt.Errorf("message %d: other bytes came back", n))
		}
		payload += 2 * int64(size)
	}
	sent := sha256.New()
	done := make(chan error)
	go func() {
		var err error
		for left := stream; left > 0 && err == nil; {
			size := min(left, 1+rng.Intn(100000))
			block := noise[size : 2*size]
			sent.Write(block)
			_, err = c.Write(block)
			left -= size
		}
		if err == nil {
			err = c.(*net.TCPConn).CloseWrite()
		}
		done <- err
	}()
	got := sha256.New()
	size, err := io.Copy(got, c)
	check(err)
	check(<-done)
	if size != stream || !bytes.Equal(sent.Sum(nil), got.Sum(nil)) {
		check(fmt.Errorf("%d bytes of %d came back", size, stream))
	}
	check(c.Close())
	return payload + 2*stream
}

func min(a, b int) int {
	if a < b {
		return a
	}
	return b
}

func serve(handle func(net.Conn)) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	fmt.Println("port", l.Addr().(*net.TCPAddr).Port)
	for {
		c, err := l.Accept()
		check(err)
		go handle(c)
	}
}

// io.Copy between TCP connections is splice on Linux.
func pass(from, to net.Conn) {
	_, err := io.Copy(to, from)
	check(err)
	check(to.(*net.TCPConn).CloseWrite())
}

func main() {
	switch os.Args[1] {
	case "server":
		serve(func(c net.Conn) { pass(c, c); c.Close() })
	case "relay":
		serve(func(c net.Conn) {
			to, err := net.Dial("tcp", "127.0.0.1:"+os.Args[2])
			check(err)
			go pass(c, to)
			pass(to, c)
			c.Close()
			to.Close()
		})
	case "client":
		var payload int64
		var lock sync.Mutex
		var all sync.WaitGroup
		for n := int64(0); n < connections; n++ {
			all.Add(1)
			go func(n int64) {
				moved := client("127.0.0.1:"+os.Args[2], n)
				lock.Lock()
				payload += moved
				lock.Unlock()
				all.Done()
			}(n)
		}
		all.Wait()
		fmt.Println("payload", payload)
	}
}
