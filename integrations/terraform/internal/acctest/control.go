package acctest

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/sallyport/sallyport/integrations/terraform/internal/client"
)

var controlReady = regexp.MustCompile(`ready api=(\S+) .* data=(\S+) `)

// StartControl starts a bus and a `sallyport control` with more flags, which takes edges, and returns the account that owns it.
func StartControl(t *testing.T, flags ...string) *Account {
	t.Helper()
	folder := t.TempDir()
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	found, err := exec.Command(filepath.Join(root, "..", "..", "scripts", "tools"), "nats-server").Output()
	if err != nil {
		t.Fatalf("scripts/tools has no nats-server: %v", err)
	}
	bus := freeAddress(t)
	host, port, _ := net.SplitHostPort(bus)
	startProgram(t, folder, "bus.log", strings.TrimSpace(string(found)), "-js", "-sd", filepath.Join(folder, "js"), "-a", host, "-p", port)
	program, err := Program()
	if err != nil {
		t.Fatal(err)
	}
	server := &Server{Data: filepath.Join(folder, "data"), log: filepath.Join(folder, "control.log"), ready: controlReady}
	arguments := append([]string{
		"control", "--domain", "edges.localhost", "--bus", "nats://" + bus, "--listen", "127.0.0.1:0",
		"--listen-edges", "127.0.0.1:0", "--data", server.Data, "--log-format", "text",
	}, flags...)
	server.process = exec.Command(program, arguments...)
	server.process.Env = []string{"HOME=" + folder, "PATH=" + os.Getenv("PATH")}
	output, err := server.process.StderrPipe()
	if err == nil {
		err = server.process.Start()
	}
	if err == nil {
		t.Cleanup(server.Stop)
		err = server.awaitReady(output)
	}
	if err != nil {
		t.Fatal(err)
	}
	server.CA = filepath.Join(server.Data, "ca.pem")
	return server.NewAccount(t) // the first account owns the installation
}

// startProgram runs a program until the test ends.
func startProgram(t *testing.T, folder, log, program string, arguments ...string) {
	t.Helper()
	file, err := os.Create(filepath.Join(folder, log))
	if err != nil {
		t.Fatal(err)
	}
	process := exec.Command(program, arguments...)
	process.Stdout, process.Stderr = file, file
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = process.Process.Kill()
		_ = process.Wait()
		_ = file.Close()
	})
}

func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

// Transport reaches the server's sockets by their names.
func (a *Account) Transport(t *testing.T) *http.Transport {
	t.Helper()
	text, err := os.ReadFile(a.CA)
	if err != nil {
		t.Fatal(err)
	}
	trust := x509.NewCertPool()
	if !trust.AppendCertsFromPEM(text) {
		t.Fatal(fmt.Errorf("no certificate in %s", a.CA))
	}
	return &http.Transport{DialContext: client.Dial, TLSClientConfig: &tls.Config{RootCAs: trust}}
}
