// Package client is a client of Sallyport's API, /v1.
package client

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
)

const (
	// maxAnswerBytes bounds the body of an answer.
	maxAnswerBytes = 8 << 20
	// maxCAFileBytes bounds the file of trusted certificates.
	maxCAFileBytes = 1 << 20
	// maxTries bounds how often a request is sent.
	maxTries = 5
	// maxPages bounds how many pages of a list are read.
	maxPages = 1000
	// maxListBytes bounds the items of a list.
	maxListBytes = 64 << 20
	// pageItems is how many items a page has.
	pageItems = 100
)

// Config is what a client needs to know.
type Config struct {
	API          string // https://api.example.com
	Token        string // an API token or an access token; empty for requests that need none
	CA           string // a file of trusted certificates in PEM; empty for those of the system
	Organisation string // the organisation to act for; empty for that of the token
	Version      string // the version of the provider
	// From is the address that connections come from; the system chooses when nil.
	From net.Addr
	// Timeout is how long one try may take; 30 s when zero.
	Timeout time.Duration
	// Pause is the first pause before a repetition, which doubles; 250 ms when zero.
	Pause time.Duration
	// MaxPause bounds each pause, also that of Retry-After; 30 s when zero.
	MaxPause time.Duration
}

// Client calls the API. Its methods may be called at the same time.
type Client struct {
	config Config
	base   *url.URL
	http   *http.Client
	// control is the version of control, once it is known.
	control string
	memory  memory
}

// Answer is a successful answer.
type Answer struct {
	Status   int
	Body     []byte
	ETag     string
	Location string
	// Repeated says whether an earlier try may have reached the server.
	Repeated bool
}

// Object is an object of the API, as JSON decodes it.
type Object = map[string]any

// Option changes one request.
type Option func(*http.Request)

// IfMatch has a change take place only while the object has this entity tag.
func IfMatch(tag string) Option {
	return func(request *http.Request) {
		if tag != "" {
			request.Header.Set("If-Match", tag)
		}
	}
}

// IdempotencyKey names a creation, so that a repetition makes nothing twice.
func IdempotencyKey(key string) Option {
	return func(request *http.Request) { request.Header.Set("Idempotency-Key", key) }
}

// NewKey returns a new idempotency key.
func NewKey() string {
	var bytes [16]byte
	_, _ = rand.Read(bytes[:]) // never fails, says crypto/rand
	return "terraform-" + hex.EncodeToString(bytes[:])
}

// New returns a client, or an error in one sentence.
func New(config Config) (*Client, error) {
	base, err := url.Parse(strings.TrimSuffix(config.API, "/"))
	if err == nil && base.User != nil {
		return nil, errors.New("the address of the API has a user in it: write https://HOST or https://HOST:PORT, and the token into SALLYPORT_TOKEN")
	}
	if err != nil || base.Host == "" || base.Scheme != "https" || base.RawQuery != "" || base.ForceQuery || strings.Contains(config.API, "#") {
		return nil, fmt.Errorf("%q is no address of the API: write https://HOST or https://HOST:PORT", shown(config.API, config.Token))
	}
	if base.Path != "" || base.RawQuery != "" || base.Fragment != "" || base.User != nil {
		return nil, fmt.Errorf("%q has more than a host and a port: write https://%s", config.API, base.Host)
	}
	if strings.ContainsAny(config.Token, " \t\r\n") {
		return nil, errors.New("the token has white space in it: copy it again, without quotes and line ends")
	}
	config.Timeout = orElse(config.Timeout, 30*time.Second)
	config.Pause = orElse(config.Pause, 250*time.Millisecond)
	config.MaxPause = orElse(config.MaxPause, 30*time.Second)
	trust := &tls.Config{MinVersion: tls.VersionTLS12}
	if config.CA != "" {
		trust.RootCAs, err = readCA(config.CA)
		if err != nil {
			return nil, err
		}
	}
	transport := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         Dial,
		TLSClientConfig:     trust,
		ForceAttemptHTTP2:   true,
		MaxIdleConnsPerHost: 16,
		IdleConnTimeout:     time.Minute,
		TLSHandshakeTimeout: 10 * time.Second,
	}
	noRedirect := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Client{config: config, base: base, http: &http.Client{Transport: transport, CheckRedirect: noRedirect}}, nil
}

func orElse(value, otherwise time.Duration) time.Duration {
	if value == 0 {
		return otherwise
	}
	return value
}

func readCA(path string) (*x509.CertPool, error) {
	file, err := os.Open(path)
	if err != nil && strings.HasPrefix(path, "~") {
		return nil, fmt.Errorf("the file of `ca` cannot be read: nobody has replaced the ~ of %q; write the whole path, or `pathexpand(%q)`", path, path)
	}
	if err != nil {
		return nil, fmt.Errorf("the file of `ca` cannot be read: %w", err)
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxCAFileBytes))
	if err != nil {
		return nil, fmt.Errorf("the file of `ca` cannot be read: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("the file of `ca`, %s, has no certificate in PEM", path)
	}
	return pool, nil
}

// Dial connects; names beneath localhost are this machine (RFC 6761 section 6.3).
func Dial(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: 10 * time.Second}
	host, port, err := net.SplitHostPort(address)
	if err == nil && strings.HasSuffix(strings.TrimSuffix(host, "."), ".localhost") {
		address = net.JoinHostPort("localhost", port)
	}
	return dialer.DialContext(ctx, network, address)
}

// Check asks control for its version, and whether the token is good. It returns an error in one sentence.
func (c *Client) Check(ctx context.Context) error {
	var info struct {
		Version string `json:"version"`
	}
	if _, err := c.Get(ctx, "/v1/info", &info); err != nil {
		return err
	}
	c.control = shown(info.Version, c.config.Token)
	_, err := c.Get(ctx, "/v1/organisation", nil)
	if HasCode(err, "missing-scope") || HasCode(err, "missing-role") {
		return nil // it is good for something else
	}
	return err
}

// API is the address of the API.
func (c *Client) API() string { return c.config.API }

// Get reads an object into out, which may be nil.
func (c *Client) Get(ctx context.Context, path string, out any) (*Answer, error) {
	return c.Do(ctx, http.MethodGet, path, nil, out)
}

// Create makes an object by POST. The API gets one idempotency key, whatever happens to its answers.
func (c *Client) Create(ctx context.Context, path string, body, out any) (*Answer, error) {
	return c.Do(ctx, http.MethodPost, path, body, out, IdempotencyKey(NewKey()))
}

// List reads all items of a list, page by page; query may be empty.
func (c *Client) List(ctx context.Context, path string, query url.Values) ([]json.RawMessage, error) {
	items := []json.RawMessage{}
	after, bytes := "", 0
	for range maxPages {
		values := url.Values{}
		for name, value := range query {
			values[name] = value
		}
		values.Set("limit", strconv.Itoa(pageItems))
		if after != "" {
			values.Set("after", after)
		}
		var page struct {
			Items []json.RawMessage `json:"items"`
			Next  *string           `json:"next"`
		}
		if _, err := c.Get(ctx, path+"?"+values.Encode(), &page); err != nil {
			return nil, err
		}
		for _, item := range page.Items {
			bytes += len(item)
		}
		if bytes > maxListBytes {
			return nil, fmt.Errorf("the list %s has more than %d bytes", path, maxListBytes)
		}
		items = append(items, page.Items...)
		if page.Next == nil || *page.Next == "" {
			return items, nil
		}
		if *page.Next == after {
			return nil, fmt.Errorf("the list %s does not end: a page names itself as the next", path)
		}
		after = *page.Next
	}
	return nil, fmt.Errorf("the list %s has more than %d items", path, maxPages*pageItems)
}

// Do sends a request, and again where its answer was lost or the server was busy. Requests of the API may be
// repeated: creations have an idempotency key, and all others say how things shall be afterwards. The body of a POST
// without a key is sent once unless the server said that it did not handle it.
func (c *Client) Do(ctx context.Context, method, path string, body, out any, options ...Option) (*Answer, error) {
	var encoded []byte
	if body != nil {
		var err error
		if encoded, err = json.Marshal(body); err != nil {
			return nil, err
		}
	}
	pause := c.config.Pause
	lost := false
	for try := 1; ; try++ {
		answer, problem, wait, err := c.once(ctx, method, path, encoded, options)
		mayRepeat := false
		switch {
		case err != nil:
			mayRepeat = err.isRepeatable && (method != http.MethodPost || err.hasKey)
			lost = lost || err.isSent
		case problem != nil && problem.isTransient():
			mayRepeat = true
		case problem != nil && method == http.MethodDelete && IsGone(problem):
			return &Answer{Status: problem.Status, Repeated: lost}, nil // what shall be gone is gone
		case problem != nil:
			problem.Repeated = lost
			return nil, problem
		default:
			answer.Repeated = lost
			if out != nil && len(answer.Body) > 0 {
				if err := json.Unmarshal(answer.Body, out); err != nil {
					return nil, fmt.Errorf("the answer of %s %s is not what the API describes: %w; does `api` name a Sallyport?", method, path, err)
				}
			}
			return answer, nil
		}
		if !mayRepeat || try == maxTries || !sleep(ctx, min(max(pause, wait), c.config.MaxPause)) {
			if problem != nil {
				problem.Repeated = lost
				return nil, problem
			}
			return nil, c.explain(err.cause)
		}
		pause *= 2
	}
}

// failure is a request without an answer.
type failure struct {
	cause                        error
	isRepeatable, isSent, hasKey bool
}

func (c *Client) once(ctx context.Context, method, path string, body []byte, options []Option) (*Answer, *Problem, time.Duration, *failure) {
	if method != http.MethodGet {
		// Ctrl-C ends an apply after this request, so that the state has what it made.
		ctx = context.WithoutCancel(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, c.config.Timeout)
	defer cancel()
	// A path may be what a server said: with anything else before it, the token could go to another host.
	if !strings.HasPrefix(path, "/v1/") {
		return nil, nil, 0, &failure{cause: fmt.Errorf("%q is no path of the API", shown(path, c.config.Token))}
	}
	request, err := http.NewRequestWithContext(ctx, method, c.base.String()+path, bytes.NewReader(body))
	if err != nil {
		return nil, nil, 0, &failure{cause: err}
	}
	request.Header.Set("User-Agent", "terraform-provider-sallyport/"+c.config.Version)
	request.Header.Set("Accept", "application/json")
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if c.config.Token != "" {
		request.Header.Set("Authorization", "Bearer "+c.config.Token)
	}
	if c.config.Organisation != "" {
		request.Header.Set("Sallyport-Organisation", c.config.Organisation)
	}
	for _, option := range options {
		option(request)
	}
	hasKey := request.Header.Get("Idempotency-Key") != ""
	response, err := c.http.Do(request)
	if err != nil {
		return nil, nil, 0, &failure{err, !isForGood(err), !isRefused(err), hasKey}
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswerBytes+1))
	if err == nil {
		// A server that sees the connection end may end its answer early, and the rest would seem whole.
		err = ctx.Err()
	}
	if err != nil {
		return nil, nil, 0, &failure{err, true, true, hasKey}
	}
	if len(text) > maxAnswerBytes {
		return nil, nil, 0, &failure{cause: fmt.Errorf("the answer of %s %s has more than %d bytes", method, path, maxAnswerBytes)}
	}
	if response.StatusCode >= 200 && response.StatusCode < 300 {
		return &Answer{response.StatusCode, text, response.Header.Get("ETag"), response.Header.Get("Location"), false}, nil, 0, nil
	}
	wait := time.Duration(0)
	if seconds, err := strconv.ParseUint(response.Header.Get("Retry-After"), 10, 16); err == nil {
		wait = time.Duration(seconds) * time.Second
	}
	return nil, c.readProblem(method, path, response, text), wait, nil
}

// sleep waits, and says whether there is time left.
func sleep(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
