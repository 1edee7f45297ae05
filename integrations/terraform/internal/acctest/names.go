package acctest

import (
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sallyport/sallyport/integrations/terraform/internal/client"
)

// names is the name service that the server asks about domains: dnsmasq, once a test has records for it.
var names struct {
	sync.Mutex
	records []string
	process *exec.Cmd
}

// freePort returns a port that nobody listens on.
func freePort() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer listener.Close()
	return strconv.Itoa(listener.Addr().(*net.TCPAddr).Port), nil
}

// Verify makes a domain and proves it: the record that control asks for is in the name service. It returns the name.
func (a *Account) Verify(t *testing.T, name string) string {
	t.Helper()
	program, err := exec.LookPath("dnsmasq")
	if err != nil {
		program, err = exec.LookPath("/usr/sbin/dnsmasq")
	}
	if err != nil {
		t.Skip("skipped: dnsmasq is not there; scripts/need dnsmasq installs it")
	}
	domain := a.Call(t, http.MethodPost, "/v1/domains", client.Object{"name": name})
	record := domain["records"].([]any)[0].(client.Object)
	names.Lock()
	defer names.Unlock()
	names.records = append(names.records, fmt.Sprintf("--txt-record=%s,%s", record["name"], record["value"]))
	endNames()
	_, port, _ := net.SplitHostPort(a.Resolver)
	names.process = exec.Command(program, append([]string{"--keep-in-foreground", "--no-resolv", "--no-hosts", "--conf-file=/dev/null",
		"--listen-address=127.0.0.1", "--bind-interfaces", "--port=" + port, "--pid-file="}, names.records...)...)
	if err := names.process.Start(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		found := a.Call(t, http.MethodPost, "/v1/domains/"+name+"/check", client.Object{})
		if strings.HasPrefix(fmt.Sprint(found["state"]), "verified") {
			return name
		}
	}
	t.Fatalf("%s was not verified", name)
	return ""
}

// endNames ends the name service.
func endNames() {
	if names.process != nil {
		_ = names.process.Process.Kill()
		_ = names.process.Wait()
		names.process = nil
	}
}
