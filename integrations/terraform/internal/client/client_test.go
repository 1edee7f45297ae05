package client

import (
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"
)

// served returns a client of a server that answers so.
func served(t *testing.T, answer http.HandlerFunc) *Client {
	t.Helper()
	server := httptest.NewTLSServer(answer)
	t.Cleanup(server.Close)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(ca, text, 0o600); err != nil {
		t.Fatal(err)
	}
	client, err := New(Config{API: server.URL, Token: "spt_x", CA: ca, Version: "1", Pause: time.Microsecond, MaxPause: time.Microsecond})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func cut(writer http.ResponseWriter) {
	connection, _, _ := writer.(http.Hijacker).Hijack()
	_ = connection.Close()
}

// TestRepetitions counts what reaches the server where no answer comes.
func TestRepetitions(t *testing.T) {
	for _, one := range []struct {
		name, method string
		options      []Option
		want         int
	}{
		{"a read", http.MethodGet, nil, maxTries},
		{"a change", http.MethodPatch, nil, maxTries},
		{"a deletion", http.MethodDelete, nil, maxTries},
		{"a creation", http.MethodPost, []Option{IdempotencyKey("k")}, maxTries},
		{"an act without a key", http.MethodPost, nil, 1},
	} {
		keys := map[string]int{}
		client := served(t, func(writer http.ResponseWriter, request *http.Request) {
			keys[request.Header.Get("Idempotency-Key")]++
			cut(writer)
		})
		_, err := client.Do(context.Background(), one.method, "/v1/x", Object{}, nil, one.options...)
		if err == nil || !strings.Contains(err.Error(), "control did not answer at https://127.0.0.1") {
			t.Errorf("%s: %v", one.name, err)
		}
		count := 0
		for _, times := range keys {
			count += times
		}
		if count != one.want || len(keys) != 1 {
			t.Errorf("%s was sent %d times with %d keys, not %d times", one.name, count, len(keys), one.want)
		}
	}
}

// TestBusy waits as Retry-After says, but not longer than the bound.
func TestBusy(t *testing.T) {
	count := 0
	client := served(t, func(writer http.ResponseWriter, _ *http.Request) {
		count++
		if count < 3 {
			writer.Header().Set("Retry-After", "86400")
			writer.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(writer, `{"id": "x"}`)
	})
	answer := Object{}
	if _, err := client.Create(context.Background(), "/v1/x", Object{}, &answer); err != nil || answer["id"] != "x" || count != 3 {
		t.Errorf("%v %v after %d requests", answer, err, count)
	}
}

// TestProblems turns answers into sentences.
func TestProblems(t *testing.T) {
	for _, one := range []struct {
		status     int
		body, want string
	}{
		{422, `{"status": 422, "detail": "a: x", "errors": [{"field": "a", "detail": "x"}, {"field": "b[0].c", "detail": "y"}]}`, "a: x; b[0].c: y"},
		{422, `{"status": 422, "detail": "regions: there is no such field; known are name", "code": "invalid-request"}`, "control at https://127.0.0.1"},
		{404, `<html>nothing</html>`, `the server answered 404 Not Found, and not as the API does: "<html>nothing</html>"; does ` + "`api` name a Sallyport?"},
		{412, `{"status": 412, "code": "precondition-failed"}`, "it was changed elsewhere meanwhile, and nothing was done: plan again"},
		{500, `{"status": 500, "detail": "something broke", "request_id": "r1"}`, "something broke (request r1 in the log of control)"},
		{302, ``, "the server answered 302 Found, and not as the API does"},
		{200, `no json`, "the answer of GET /v1/x is not what the API describes"},
	} {
		client := served(t, func(writer http.ResponseWriter, request *http.Request) {
			if request.Header.Get("Authorization") != "Bearer spt_x" {
				t.Error("no token")
			}
			writer.Header().Set("Location", "/elsewhere")
			writer.WriteHeader(one.status)
			_, _ = io.WriteString(writer, one.body)
		})
		_, err := client.Get(context.Background(), "/v1/x", &Object{})
		if err == nil || !strings.Contains(err.Error(), one.want) {
			t.Errorf("%d %s: %v", one.status, one.body, err)
		}
		if IsGone(err) {
			t.Errorf("%d %s is no proof that an object is gone", one.status, one.body)
		}
	}
}

// TestBounds reads no more than it may.
func TestBounds(t *testing.T) {
	client := served(t, func(writer http.ResponseWriter, _ *http.Request) {
		_, _ = io.CopyN(writer, endless{}, maxAnswerBytes+1)
	})
	if _, err := client.Get(context.Background(), "/v1/x", nil); err == nil || !strings.Contains(err.Error(), "more than 8388608 bytes") {
		t.Error(err)
	}
}

type endless struct{}

func (endless) Read(into []byte) (int, error) { return len(into), nil }

// TestList reads all pages.
func TestList(t *testing.T) {
	client := served(t, func(writer http.ResponseWriter, request *http.Request) {
		after, _ := strconv.Atoi(request.URL.Query().Get("after"))
		if request.URL.Query().Get("label") != "env=prod" {
			t.Error("the label is lost")
		}
		next := ""
		if after < 2 {
			next = `, "next": "` + strconv.Itoa(after+1) + `"`
		}
		_, _ = io.WriteString(writer, `{"items": [{"n": `+strconv.Itoa(after)+`}]`+next+`}`)
	})
	items, err := client.List(context.Background(), "/v1/sockets", url.Values{"label": {"env=prod"}})
	if err != nil || len(items) != 3 {
		t.Errorf("%s %v", items, err)
	}
}

// TestDeletionTwice takes an object that is gone for deleted.
func TestDeletionTwice(t *testing.T) {
	count := 0
	client := served(t, func(writer http.ResponseWriter, _ *http.Request) {
		count++
		if count == 1 {
			cut(writer) // it was deleted, and the answer is lost
			return
		}
		writer.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(writer, `{"status": 404, "code": "not-found", "detail": "there is no such socket"}`)
	})
	if _, err := client.Do(context.Background(), http.MethodDelete, "/v1/sockets/x", nil, nil); err != nil || count != 2 {
		t.Errorf("%v after %d requests", err, count)
	}
}

// TestWhatServersSay hides secrets in messages, whatever a server echoes, and bounds them.
func TestWhatServersSay(t *testing.T) {
	long := strings.Repeat("long ", 100_000)
	for _, one := range []struct{ name, body string }{
		{"a page that echoes the token", "<pre>Authorization: Bearer spt_x</pre>"},
		{"a page with a token where it is cut", strings.Repeat("x", maxShownBytes-4) + "spt_x"},
		{"a problem", `{"status": 400, "title": "spt_x", "detail": "bad header: Bearer spt_x", "request_id": "spt_x"}`},
		{"a problem with another secret", `{"status": 500, "detail": "spc_abcdefghijklmnop is known", "request_id": "spc_abcdefghijklmnop"}`},
		{"fields", `{"status": 422, "detail": "x", "errors": [{"field": "a", "detail": "spt_x"}, {"field": "b", "detail": "spt_x"}]}`},
		{"a cursor that moves", `{"status": 400, "detail": "\u001b[2Jgone\u009b2J"}`},
		{"a long problem", `{"status": 400, "detail": "` + long + `"}`},
		{"many fields", `{"status": 422, "errors": [` + strings.Repeat(`{"field": "a", "detail": "`+long[:5000]+`"}, `, 200) + `{"field": "a", "detail": "x"}]}`},
		{"letters of many bytes", `{"status": 400, "detail": "` + strings.Repeat("é", maxTextBytes) + `"}`},
	} {
		client := served(t, func(writer http.ResponseWriter, _ *http.Request) {
			writer.WriteHeader(http.StatusInternalServerError)
			_, _ = io.WriteString(writer, one.body)
		})
		_, err := client.Get(context.Background(), "/v1/x", nil)
		text := fmt.Sprint(err)
		if err == nil || strings.Contains(text, "spt_") || strings.Contains(text, "spc_") || strings.ContainsAny(text, "\x1b\u009b") ||
			!utf8.ValidString(text) || len(text) > maxErrors*(maxTextBytes+100) {
			t.Errorf("%s: %d bytes: %.300s", one.name, len(text), text)
		}
	}
}

// TestOtherHosts sends the token to no host but that of the API, whatever a server names.
func TestOtherHosts(t *testing.T) {
	reached := 0
	elsewhere := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached++ }))
	defer elsewhere.Close()
	for _, status := range []int{301, 302, 303, 307, 308} {
		client := served(t, func(writer http.ResponseWriter, _ *http.Request) {
			writer.Header().Set("Location", elsewhere.URL+"/v1/x")
			writer.WriteHeader(status)
		})
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPatch, http.MethodDelete} {
			if _, err := client.Do(context.Background(), method, "/v1/x", nil, nil); err == nil || !strings.Contains(err.Error(), "not as the API does") {
				t.Errorf("%s %d: %v", method, status, err)
			}
		}
	}
	client := served(t, func(http.ResponseWriter, *http.Request) { reached++ })
	for _, path := range []string{elsewhere.URL, "@" + strings.TrimPrefix(elsewhere.URL, "https://") + "/v1/x", ".example.com/v1/x", "0/v1/x", "", "/", "//x/v1/"} {
		if _, err := client.Get(context.Background(), path, nil); err == nil || !strings.Contains(err.Error(), "is no path of the API") {
			t.Errorf("%q: %v", path, err)
		}
	}
	if reached > 0 {
		t.Errorf("%d requests have left", reached)
	}
}

// TestAddresses refuses addresses of the API with more than a host, without showing secrets in them.
func TestAddresses(t *testing.T) {
	for _, address := range []string{
		"https://owner:hunter22@api.example.com", "https://spt_abcdefghijkl@api.example.com", "https://api.example.com/?a", "https://api.example.com?",
		"https://api.example.com#a", "http://api.example.com", "https://", "api.example.com", "https://api.example.com/?token=spt_abcdefghijkl",
	} {
		_, err := New(Config{API: address, Token: "spt_x"})
		if err == nil || !strings.Contains(err.Error(), "write https://HOST") || strings.Contains(err.Error(), "hunter22") || strings.Contains(err.Error(), "spt_a") {
			t.Errorf("%s: %v", address, err)
		}
	}
}

// TestSlowAnswers ends a try that takes too long, also where each byte comes in time.
func TestSlowAnswers(t *testing.T) {
	over := make(chan struct{})
	tries := atomic.Int64{}
	client := served(t, func(writer http.ResponseWriter, request *http.Request) {
		tries.Add(1)
		for range 1_000_000 {
			if _, err := writer.Write([]byte(" ")); err != nil || http.NewResponseController(writer).Flush() != nil {
				return
			}
			select {
			case <-over:
				return
			case <-request.Context().Done():
				return
			case <-time.After(time.Millisecond):
			}
		}
	})
	t.Cleanup(func() { close(over) })
	client.config.Timeout = 100 * time.Millisecond
	_, err := client.Get(context.Background(), "/v1/x", nil)
	if err == nil || !strings.Contains(err.Error(), "control did not answer in time") || tries.Load() != maxTries {
		t.Errorf("%v after %d tries", err, tries.Load())
	}
}

// TestCancellation ends reads at once, and a change after its answer.
func TestCancellation(t *testing.T) {
	for _, method := range []string{http.MethodGet, http.MethodPatch} {
		ctx, cancel := context.WithCancel(context.Background())
		count := 0
		client := served(t, func(writer http.ResponseWriter, request *http.Request) {
			count++
			_, _ = io.Copy(io.Discard, request.Body)
			cancel()
			if method == http.MethodGet {
				<-request.Context().Done()
			}
			_, _ = io.WriteString(writer, `{"id": "x"}`)
		})
		answer := Object{}
		_, err := client.Do(ctx, method, "/v1/x", Object{}, &answer)
		if method == http.MethodGet && (err == nil || err.Error() != "the request was cancelled") {
			t.Errorf("%s: %v", method, err)
		}
		if method != http.MethodGet && (err != nil || answer["id"] != "x") {
			t.Errorf("%s: %v %v", method, answer, err)
		}
		if count != 1 {
			t.Errorf("%s was sent %d times", method, count)
		}
	}
}

// TestListsWithoutEnd reads no list for ever, and keeps no more of it than it may.
func TestListsWithoutEnd(t *testing.T) {
	count := 0
	item := `"` + strings.Repeat("x", maxAnswerBytes/2) + `"`
	for _, one := range []struct {
		item, next, want string
		most             int
	}{
		{"1", "same", "does not end", 2},
		{item, "", "has more than", 2*maxListBytes/maxAnswerBytes + 1},
	} {
		count = 0
		client := served(t, func(writer http.ResponseWriter, _ *http.Request) {
			count++
			next := one.next
			if next == "" {
				next = strconv.Itoa(count)
			}
			_, _ = io.WriteString(writer, `{"items": [`+one.item+`], "next": "`+next+`"}`)
		})
		if _, err := client.List(context.Background(), "/v1/x", nil); err == nil || !strings.Contains(err.Error(), one.want) || count > one.most {
			t.Errorf("%v after %d pages", err, count)
		}
	}
}
