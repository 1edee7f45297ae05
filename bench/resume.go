// Makes TLS connections, one request on each, and resumes the session of the one before.
//
// usage: resume ADDRESS:PORT SERVER_NAME PATH CONNECTIONS SECONDS
//
// So many connections are under way at a time; each of them keeps its own session. Prints JSON: how many there were, how
// many of them were resumed, how long it took, and the latency from the first byte to the end of the answer's head.
package main

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"
)

type result struct {
	Count     int     `json:"count"`
	Resumed   int     `json:"resumed"`
	Failed    int     `json:"failed"`
	FirstFail string  `json:"first_failure"`
	Seconds   float64 `json:"seconds"`
	P50Ms     float64 `json:"p50_ms"`
	P99Ms     float64 `json:"p99_ms"`
	times     []float64
}

// once makes one connection, and says whether it resumed a session.
func once(address, request string, config *tls.Config) (bool, error) {
	tcp, err := net.DialTimeout("tcp", address, 10*time.Second)
	if err != nil {
		return false, err
	}
	defer tcp.Close()
	_ = tcp.SetDeadline(time.Now().Add(10 * time.Second))
	stream := tls.Client(tcp, config)
	if _, err := io.WriteString(stream, request); err != nil {
		return false, err
	}
	// To the end: tickets come with the answer.
	answer, err := io.ReadAll(stream)
	if !strings.HasPrefix(string(answer), "HTTP/1.1 200") {
		return false, fmt.Errorf("answered %.60q (%v)", answer, err)
	}
	return stream.ConnectionState().DidResume, nil
}

func worker(address, request, name string, until time.Time, out *result, lock *sync.Mutex) {
	config := &tls.Config{ServerName: name, InsecureSkipVerify: true, ClientSessionCache: tls.NewLRUClientSessionCache(4)}
	for time.Now().Before(until) {
		begin := time.Now()
		resumed, err := once(address, request, config)
		took := time.Since(begin).Seconds() * 1e3
		lock.Lock()
		if err != nil {
			out.Failed++
			out.FirstFail = err.Error()
		} else {
			out.Count++
			out.times = append(out.times, took)
			if resumed {
				out.Resumed++
			}
		}
		lock.Unlock()
	}
}

func main() {
	if len(os.Args) != 6 {
		fmt.Fprintln(os.Stderr, "usage: resume ADDRESS:PORT SERVER_NAME PATH CONNECTIONS SECONDS")
		os.Exit(2)
	}
	address, name, path := os.Args[1], os.Args[2], os.Args[3]
	connections, _ := strconv.Atoi(os.Args[4])
	seconds, _ := strconv.ParseFloat(os.Args[5], 64)
	_, port, _ := net.SplitHostPort(address)
	request := fmt.Sprintf("GET %s HTTP/1.1\r\nHost: %s:%s\r\nConnection: close\r\n\r\n", path, name, port)
	begin := time.Now()
	until := begin.Add(time.Duration(seconds * float64(time.Second)))
	out, lock, all := &result{}, &sync.Mutex{}, &sync.WaitGroup{}
	for range connections {
		all.Add(1)
		go func() {
			defer all.Done()
			worker(address, request, name, until, out, lock)
		}()
	}
	all.Wait()
	out.Seconds = time.Since(begin).Seconds()
	sort.Float64s(out.times)
	if n := len(out.times); n > 0 {
		out.P50Ms, out.P99Ms = out.times[n/2], out.times[n*99/100]
	}
	_ = json.NewEncoder(os.Stdout).Encode(out)
}
