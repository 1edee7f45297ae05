package acctest

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// Proxy stands between the provider and control, and makes faults.
type Proxy struct {
	API, CA string
	mutex   sync.Mutex
	faults  []*Fault
	// requests are the methods and paths of what came, in order.
	requests []string
}

// Fault is what happens to requests of a method to a path.
type Fault struct {
	Method string // "" for all
	Prefix string // the beginning of the path
	Times  int    // how often it happens; 0 for always
	// Status answers in the place of control, where it is not 0. The body is that of an old control for 404.
	Status int
	Header map[string]string
	// Before runs before the request goes to control, and has the path.
	Before func(path string)
	// IsLost cuts the connection after control has handled the request.
	IsLost bool
	done   int
}

// NewProxy starts a proxy in front of the account's control.
func (a *Account) NewProxy(t *testing.T) *Proxy {
	t.Helper()
	root, err := os.ReadFile(a.CA)
	if err != nil {
		t.Fatal(err)
	}
	trust := x509.NewCertPool()
	trust.AppendCertsFromPEM(root)
	control, err := url.Parse(a.API)
	if err != nil {
		t.Fatal(err)
	}
	// The name is one of this machine, which resolvers need not know.
	target := *control
	target.Host = "127.0.0.1:" + control.Port()
	forward := &httputil.ReverseProxy{
		Rewrite: func(request *httputil.ProxyRequest) {
			request.SetURL(&target)
			request.Out.Host = control.Host
		},
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trust, ServerName: control.Hostname()}},
		ErrorLog:  log.New(os.Stderr, "proxy: ", 0),
	}
	proxy := &Proxy{}
	server := httptest.NewTLSServer(http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		proxy.serve(writer, request, forward)
	}))
	t.Cleanup(server.Close)
	proxy.API = server.URL
	proxy.CA = filepath.Join(t.TempDir(), "proxy.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(proxy.CA, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return proxy
}

// Use has a workspace reach control by the proxy.
func (w *Workspace) Use(proxy *Proxy) {
	w.Set("SALLYPORT_API", proxy.API)
	w.Set("SALLYPORT_CA", proxy.CA)
}

// Add adds a fault; an earlier one comes first.
func (p *Proxy) Add(fault Fault) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.faults = append(p.faults, &fault)
}

// Clear removes all faults.
func (p *Proxy) Clear() {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.faults = nil
}

// Count says how many requests of a method there were to paths that begin so.
func (p *Proxy) Count(method, prefix string) int {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	count := 0
	for _, request := range p.requests {
		if strings.HasPrefix(request, method+" "+prefix) {
			count++
		}
	}
	return count
}

func (p *Proxy) take(request *http.Request) *Fault {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.requests = append(p.requests, request.Method+" "+request.URL.Path)
	for _, fault := range p.faults {
		if (fault.Method == "" || fault.Method == request.Method) && strings.HasPrefix(request.URL.Path, fault.Prefix) &&
			(fault.Times == 0 || fault.done < fault.Times) {
			fault.done++
			return fault
		}
	}
	return &Fault{}
}

const unknownPath = `{"type":"about:blank","title":"Not Found","status":404,"detail":"there is nothing at this path: see /openapi.json","code":"no-such-path"}`

func (p *Proxy) serve(writer http.ResponseWriter, request *http.Request, forward http.Handler) {
	fault := p.take(request)
	if fault.Before != nil {
		fault.Before(request.URL.Path)
	}
	if fault.Status != 0 {
		for name, value := range fault.Header {
			writer.Header().Set(name, value)
		}
		writer.Header().Set("Content-Type", "application/problem+json")
		writer.WriteHeader(fault.Status)
		if fault.Status == http.StatusNotFound {
			_, _ = writer.Write([]byte(unknownPath))
		}
		return
	}
	if !fault.IsLost {
		forward.ServeHTTP(writer, request)
		return
	}
	forward.ServeHTTP(httptest.NewRecorder(), request)
	connection, _, err := writer.(http.Hijacker).Hijack()
	if err == nil {
		_ = connection.Close()
	}
}
