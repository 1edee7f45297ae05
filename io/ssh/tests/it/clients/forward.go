// golang.org/x/crypto/ssh as `ssh -R`: forward PORT USER KEY KNOWN_HOSTS REMOTE_PORT LOCAL_PORT
package main

import (
	"io"
	"log"
	"net"
	"os"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	port, user, key, knownHosts, remotePort, localPort := os.Args[1], os.Args[2], os.Args[3], os.Args[4], os.Args[5], os.Args[6]
	text, err := os.ReadFile(key)
	check(err)
	signer, err := ssh.ParsePrivateKey(text)
	check(err)
	isKnown, err := knownhosts.New(knownHosts)
	check(err)
	config := &ssh.ClientConfig{
		Config:          ssh.Config{RekeyThreshold: 1 << 20},
		User:            user,
		Auth:            []ssh.AuthMethod{ssh.PublicKeys(signer)},
		HostKeyCallback: isKnown,
	}
	client, err := ssh.Dial("tcp", "127.0.0.1:"+port, config)
	check(err)
	listener, err := client.Listen("tcp", "0.0.0.0:"+remotePort)
	check(err)
	for {
		visitor, err := listener.Accept()
		check(err)
		go serve(visitor.(interface {
			net.Conn
			CloseWrite() error
		}), localPort)
	}
}

func serve(visitor interface {
	net.Conn
	CloseWrite() error
}, localPort string) {
	origin, err := net.Dial("tcp", "127.0.0.1:"+localPort)
	check(err)
	go func() {
		io.Copy(origin, visitor)
		origin.(*net.TCPConn).CloseWrite()
	}()
	io.Copy(visitor, origin)
	visitor.CloseWrite()
}
