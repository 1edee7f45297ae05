package client

import (
	"context"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
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
