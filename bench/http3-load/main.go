// Loads of clients over HTTP/3 or HTTP/2: requests on kept connections, many new connections, or many that rest.
//
//	http3-load requests VERSION ADDRESS HOST PATH CONNECTIONS STREAMS SECONDS
//	http3-load new VERSION ADDRESS HOST PATH AT_A_TIME SECONDS
//	http3-load down|up VERSION ADDRESS HOST PATH CONNECTIONS SECONDS
//	http3-load hold VERSION ADDRESS HOST PATH COUNT...
//
// `requests` makes so many connections, keeps so many requests under way on each, and prints what came of them as JSON.
// `new` makes connections with a whole handshake and a request each, so many at a time, and prints the same. `down` and
// `up` have one body that does not end on each connection, and print the bytes of all as JSON. `hold`
// makes connections with a request each and keeps them: it prints a line once so many are there, and goes on to the
// next count for each line that it reads. At its end it prints how many are still open. No certificate is verified, and
// no session is resumed. TLS is the same for all: TLS 1.3 with X25519.
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sort"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"golang.org/x/net/http2"
)

// How long a connection and its request may take.
const patience = 20 * time.Second

// How long a kept connection may say nothing, and how often it sends a ping, since servers allow less.
const (
	rest = 10 * time.Minute
	ping = 15 * time.Second
)

// A connection that can carry requests.
type connection interface {
	RoundTrip(*http.Request) (*http.Response, error)
}

// A connection that is there.
type kept struct {
	connection
	isOpen func() bool
	close  func()
}

// Where connections go, and what is asked on each.
type target struct {
	version, address, host, path string
	// The socket of connections over QUIC.
	socket *quic.Transport
}

func trust(host, alpn string) *tls.Config {
	return &tls.Config{
		InsecureSkipVerify: true,
		ServerName:         host,
		NextProtos:         []string{alpn},
		MinVersion:         tls.VersionTLS13,
		CurvePreferences:   []tls.CurveID{tls.X25519},
	}
}

func newSocket() (*quic.Transport, error) {
	socket, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, err
	}
	return &quic.Transport{Conn: socket}, nil
}

// Makes a connection, and a request on it.
func (t *target) begin(ctx context.Context) (kept, error) {
	made, err := t.connect(ctx)
	if err != nil {
		return kept{}, err
	}
	if err := t.ask(ctx, made); err != nil {
		made.close()
		return kept{}, err
	}
	return made, nil
}

func (t *target) connect(ctx context.Context) (kept, error) {
	if t.version == "3" {
		return t.connectQuic(ctx)
	}
	return t.connectTls(ctx)
}

func (t *target) connectQuic(ctx context.Context) (kept, error) {
	address, err := net.ResolveUDPAddr("udp4", t.address)
	if err != nil {
		return kept{}, err
	}
	config := &quic.Config{MaxIdleTimeout: rest, KeepAlivePeriod: ping}
	made, err := t.socket.Dial(ctx, address, trust(t.host, "h3"), config)
	if err != nil {
		return kept{}, err
	}
	end := func() { made.CloseWithError(0x100, "") } // H3_NO_ERROR
	return kept{(&http3.Transport{}).NewClientConn(made), func() bool { return made.Context().Err() == nil }, end}, nil
}

func (t *target) connectTls(ctx context.Context) (kept, error) {
	stream, err := (&tls.Dialer{Config: trust(t.host, "h2")}).DialContext(ctx, "tcp4", t.address)
	if err != nil {
		return kept{}, err
	}
	made, err := (&http2.Transport{}).NewClientConn(stream)
	if err != nil {
		stream.Close()
		return kept{}, err
	}
	return kept{made, func() bool { return !made.State().Closed }, func() { made.Close() }}, nil
}

func (t *target) request(ctx context.Context) (*http.Request, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+t.host+t.path, nil)
	if err != nil {
		return nil, err
	}
	_, port, err := net.SplitHostPort(t.address)
	if err != nil {
		return nil, err
	}
	request.Host = net.JoinHostPort(t.host, port)
	return request, nil
}

func (t *target) ask(ctx context.Context, on connection) error {
	request, err := t.request(ctx)
	if err != nil {
		return err
	}
	answer, err := on.RoundTrip(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", answer.StatusCode)
	}
	_, err = io.Copy(io.Discard, answer.Body)
	return err
}

// What a load came to.
type tally struct {
	Count        int     `json:"count"`
	Seconds      float64 `json:"seconds"`
	P50          float64 `json:"p50_ms"`
	P99          float64 `json:"p99_ms"`
	Failed       int     `json:"failed"`
	FirstFailure string  `json:"first_failure"`
}

// The results of a load so far.
type results struct {
	lock         sync.Mutex
	begin        time.Time
	times        []float64
	failed       int
	firstFailure string
}

// Adds what began then and has ended now.
func (r *results) add(begin time.Time, err error) {
	took := time.Since(begin).Seconds() * 1e3
	r.lock.Lock()
	defer r.lock.Unlock()
	if err == nil {
		r.times = append(r.times, took)
	} else if r.failed++; r.failed == 1 {
		r.firstFailure = err.Error()
	}
}

func (r *results) tally() tally {
	said := tally{Count: len(r.times), Seconds: time.Since(r.begin).Seconds(), Failed: r.failed}
	said.FirstFailure = r.firstFailure
	if sort.Float64s(r.times); len(r.times) > 0 {
		said.P50, said.P99 = r.times[len(r.times)/2], r.times[len(r.times)*99/100]
	}
	return said
}

// Requests on kept connections, until the time is over.
func (t target) keepAlive(connections, streams int, seconds float64) (tally, error) {
	var made []kept
	for range connections {
		socket, err := newSocket()
		if err != nil {
			return tally{}, err
		}
		defer socket.Close()
		own := t
		own.socket = socket
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		one, err := own.begin(ctx)
		cancel()
		if err != nil {
			return tally{}, err
		}
		defer one.close()
		made = append(made, one)
	}
	var workers sync.WaitGroup
	found := results{begin: time.Now()}
	end := found.begin.Add(time.Duration(seconds * float64(time.Second)))
	ctx, cancel := context.WithDeadline(context.Background(), end.Add(patience))
	defer cancel()
	for _, one := range made {
		for range streams {
			workers.Go(func() {
				for begin := time.Now(); begin.Before(end); begin = time.Now() {
					err := t.ask(ctx, one)
					if found.add(begin, err); err != nil {
						return
					}
				}
			})
		}
	}
	workers.Wait()
	return found.tally(), nil
}

// What a load of bulk came to.
type moved struct {
	Bytes   int64   `json:"bytes"`
	Seconds float64 `json:"seconds"`
}

// A body that does not end before its time is over.
type endless struct {
	end  time.Time
	sent *atomic.Int64
}

func (e endless) Read(into []byte) (int, error) {
	if !time.Now().Before(e.end) {
		return 0, io.EOF
	}
	clear(into)
	e.sent.Add(int64(len(into)))
	return len(into), nil
}

// One download or upload on each connection, until the time is over.
func (t target) move(isUp bool, connections int, seconds float64) (moved, error) {
	var workers sync.WaitGroup
	var bytes atomic.Int64
	failures := make(chan error, connections)
	begin := time.Now()
	end := begin.Add(time.Duration(seconds * float64(time.Second)))
	for range connections {
		socket, err := newSocket()
		if err != nil {
			return moved{}, err
		}
		own := t
		own.socket = socket
		workers.Go(func() {
			defer socket.Close()
			if err := own.moveOne(isUp, end, &bytes); err != nil {
				failures <- err
			}
		})
	}
	workers.Wait()
	select {
	case err := <-failures:
		return moved{}, err
	default:
		return moved{bytes.Load(), time.Since(begin).Seconds()}, nil
	}
}

func (t *target) moveOne(isUp bool, end time.Time, bytes *atomic.Int64) error {
	ctx, cancel := context.WithDeadline(context.Background(), end.Add(patience))
	defer cancel()
	made, err := t.connect(ctx)
	if err != nil {
		return err
	}
	defer made.close()
	request, err := t.request(ctx)
	if err != nil {
		return err
	}
	if isUp {
		request.Method, request.Body = http.MethodPost, io.NopCloser(endless{end, bytes})
	}
	answer, err := made.RoundTrip(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", answer.StatusCode)
	}
	if isUp {
		return nil
	}
	buffer := make([]byte, 256<<10)
	for time.Now().Before(end) {
		got, err := answer.Body.Read(buffer)
		bytes.Add(int64(got))
		if err != nil {
			return err
		}
	}
	return nil
}

// New connections, so many at a time, until the time is over.
func (t target) makeNew(atATime int, seconds float64) (tally, error) {
	var workers sync.WaitGroup
	found := results{begin: time.Now()}
	end := found.begin.Add(time.Duration(seconds * float64(time.Second)))
	for range atATime {
		socket, err := newSocket()
		if err != nil {
			return tally{}, err
		}
		own := t
		own.socket = socket
		workers.Go(func() {
			defer socket.Close()
			for begin := time.Now(); begin.Before(end); begin = time.Now() {
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				made, err := own.begin(ctx)
				cancel()
				found.add(begin, err)
				if err == nil {
					made.close()
				}
			}
		})
	}
	workers.Wait()
	return found.tally(), nil
}

// Keeps more and more connections, and waits for a line at each count.
func (t target) hold(counts []int) error {
	socket, err := newSocket()
	if err != nil {
		return err
	}
	t.socket = socket
	input := bufio.NewScanner(os.Stdin)
	var held []kept
	for _, count := range counts {
		for len(held) < count {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			made, err := t.begin(ctx)
			cancel()
			if err != nil {
				return err
			}
			held = append(held, made)
		}
		fmt.Println(len(held))
		input.Scan()
	}
	open := 0
	for _, one := range held {
		if one.isOpen() {
			open++
		}
	}
	fmt.Println(open)
	return nil
}

func numbers(words []string) ([]int, error) {
	var found []int
	for _, word := range words {
		number, err := strconv.Atoi(word)
		if err != nil {
			return nil, err
		}
		found = append(found, number)
	}
	return found, nil
}

func run(words []string) error {
	if len(words) < 6 {
		return fmt.Errorf("usage: http3-load requests|new|down|up|hold VERSION ADDRESS HOST PATH NUMBER...")
	}
	to := target{version: words[1], address: words[2], host: words[3], path: words[4]}
	given, err := numbers(words[5:])
	if err != nil {
		return err
	}
	var said any
	switch {
	case words[0] == "hold":
		return to.hold(given)
	case words[0] == "requests" && len(given) == 3:
		said, err = to.keepAlive(given[0], given[1], float64(given[2]))
	case (words[0] == "down" || words[0] == "up") && len(given) == 2:
		said, err = to.move(words[0] == "up", given[0], float64(given[1]))
	case words[0] == "new" && len(given) == 2:
		said, err = to.makeNew(given[0], float64(given[1]))
	default:
		err = fmt.Errorf("no such load: %v", words)
	}
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(said)
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
