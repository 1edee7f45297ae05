// Package acctest runs the provider as its users do: real terraform, the built provider, and a real `sallyport up`.
package acctest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	// patience is how long a program may take to get ready.
	patience = 60 * time.Second
	// portsOfSockets is how many ports tcp, tls and udp sockets of a server may have.
	portsOfSockets = 200
)

// Server is a running `sallyport up` with a data directory of its own.
type Server struct {
	API  string // https://api.localhost:PORT
	CA   string // the file of its root certificate
	Data string // its data directory
	// Names is the name server that looks up the records of domains; only the shared server has one.
	Names *Names
	// process is what runs; log is what it said.
	process *exec.Cmd
	log     string
	// ready finds the line that the server is ready, with the address of the API and a path.
	ready *regexp.Regexp
}

var ready = regexp.MustCompile(`ready api=(\S+) .* ca=(\S+) `)

// Program returns the path of `sallyport`, or an error that says what is missing.
func Program() (string, error) {
	if program := os.Getenv("SALLYPORT_PROGRAM"); program != "" {
		return program, nil
	}
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	program := filepath.Join(root, "..", "..", "target", "debug", "sallyport")
	if _, err := os.Stat(program); err != nil {
		return "", errors.New("no program sallyport: run `cargo build --bin sallyport`, or set SALLYPORT_PROGRAM")
	}
	return program, nil
}

// moduleRoot returns the folder with go.mod.
func moduleRoot() (string, error) {
	folder, err := os.Getwd()
	for err == nil {
		if _, missing := os.Stat(filepath.Join(folder, "go.mod")); missing == nil {
			return folder, nil
		}
		if folder == filepath.Dir(folder) {
			return "", errors.New("no go.mod above this folder")
		}
		folder = filepath.Dir(folder)
	}
	return "", err
}

// StartServer starts `sallyport up` on free ports with more flags.
func StartServer(folder string, flags ...string) (*Server, error) {
	program, err := Program()
	if err != nil {
		return nil, err
	}
	server := &Server{Data: filepath.Join(folder, "data"), log: filepath.Join(folder, "up.log"), ready: ready}
	from, err := freePorts(portsOfSockets)
	if err != nil {
		return nil, err
	}
	arguments := append([]string{
		"up", "--data", server.Data, "--listen", "127.0.0.1:0", "--listen-http", "none", "--log-format", "text",
		"--no-http3", "--choose-labels", "--direct-origins", "127.0.0.0/8", "--direct-origins", "10.0.0.0/8",
		"--port-range", fmt.Sprintf("%d-%d", from, from+portsOfSockets-1),
	}, flags...)
	server.process = exec.Command(program, arguments...)
	server.process.Env = []string{"HOME=" + folder, "PATH=" + os.Getenv("PATH")}
	output, err := server.process.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := server.process.Start(); err != nil {
		return nil, err
	}
	if err := server.awaitReady(output); err != nil {
		server.Stop()
		return nil, err
	}
	return server, nil
}

// awaitReady reads the log until the line that the server is ready, and copies what follows into the log's file.
func (s *Server) awaitReady(output io.Reader) error {
	log, err := os.Create(s.log)
	if err != nil {
		return err
	}
	lines := make(chan []string, 1)
	go func() {
		defer log.Close()
		defer close(lines)
		scanner := bufio.NewScanner(output)
		isReady := false
		for scanner.Scan() {
			fmt.Fprintln(log, scanner.Text())
			if found := s.ready.FindStringSubmatch(scanner.Text() + " "); found != nil && !isReady {
				isReady = true
				lines <- found
			}
		}
	}()
	select {
	case found, ok := <-lines:
		if !ok {
			text, _ := os.ReadFile(s.log)
			return fmt.Errorf("sallyport up ended: %s", text)
		}
		s.API, s.CA = found[1], found[2]
		return nil
	case <-time.After(patience):
		return errors.New("sallyport up did not get ready")
	}
}

// Stop ends the server.
func (s *Server) Stop() {
	_ = s.process.Process.Signal(os.Interrupt)
	ended := make(chan struct{})
	go func() { _ = s.process.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(patience):
		_ = s.process.Process.Kill()
		<-ended
	}
}

// freePorts returns the first of many ports that are free now, below those that the kernel gives away.
func freePorts(count int) (int, error) {
	for try := range 40 {
		from := 12000 + (os.Getpid()*37+try*count)%18000
		isFree := true
		for port := from; isFree && port < from+count; port += 7 {
			listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
			if isFree = err == nil; isFree {
				listener.Close()
			}
		}
		if isFree {
			return from, nil
		}
	}
	return 0, errors.New("no free ports for sockets")
}

var (
	once   sync.Once
	shared struct {
		server    *Server
		plugins   string
		terraform string
		folder    string
		missing   error
	}
)

// Main runs the tests of a package, and ends the server that they share.
func Main(m *testing.M) int {
	defer func() {
		if shared.server != nil {
			shared.server.Stop()
			shared.server.Names.Stop()
		}
		if shared.folder != "" {
			_ = os.RemoveAll(shared.folder)
		}
	}()
	return m.Run()
}

// Need returns the server that all tests of a package share. It skips a test, with the reason, where a program is
// missing.
func Need(t *testing.T) *Server {
	t.Helper()
	once.Do(func() { shared.missing = prepare() })
	if shared.missing != nil {
		if os.Getenv("SALLYPORT_TERRAFORM_REQUIRED") != "" {
			t.Fatal(shared.missing)
		}
		t.Skipf("skipped: %v", shared.missing)
	}
	return shared.server
}

func prepare() error {
	var err error
	if shared.terraform, err = terraformProgram(); err != nil {
		return err
	}
	if shared.folder, err = os.MkdirTemp("", "sallyport-terraform-"); err != nil {
		return err
	}
	if shared.plugins, err = buildProvider(shared.folder); err != nil {
		return err
	}
	names, err := StartNames()
	if err != nil {
		return err
	}
	if shared.server, err = StartServer(shared.folder, "--resolver", names.Address, "--listen-dns", "127.0.0.1:0"); err != nil {
		names.Stop()
		return err
	}
	shared.server.Names = names
	return nil
}

func terraformProgram() (string, error) {
	if program := os.Getenv("TF_ACC_TERRAFORM_PATH"); program != "" {
		return program, nil
	}
	program, err := exec.LookPath("terraform")
	if err != nil {
		return "", errors.New("terraform is not there: put it into PATH, or set TF_ACC_TERRAFORM_PATH")
	}
	return program, nil
}

// buildProvider builds the provider into a folder, which it returns.
func buildProvider(folder string) (string, error) {
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	plugins := filepath.Join(folder, "plugins")
	build := exec.Command("go", "build", "-ldflags", "-s -w -X main.version="+ProviderVersion, "-o", filepath.Join(plugins, "terraform-provider-sallyport"), ".")
	build.Dir = root
	if text, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("the provider cannot be built: %s", strings.TrimSpace(string(text)))
	}
	return plugins, nil
}

// ProviderProgram returns the path of the built provider.
func ProviderProgram() string { return filepath.Join(shared.plugins, "terraform-provider-sallyport") }

// ProviderVersion is the version of the provider that tests build.
const ProviderVersion = "0.99.0"
