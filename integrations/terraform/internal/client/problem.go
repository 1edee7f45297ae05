package client

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"regexp"
	"strings"
	"syscall"
	"unicode"
)

const (
	// maxShownBytes bounds how much of an answer that is no problem is shown, and maxSearchedBytes how much is looked at.
	maxShownBytes, maxSearchedBytes = 200, 8 << 10
	// maxTextBytes bounds each text of a problem, and maxErrors its wrong fields.
	maxTextBytes, maxErrors = 2000, 20
)

// secret finds tokens, credentials and keys of Sallyport.
var secret = regexp.MustCompile(`\bsp[a-z]_[A-Za-z0-9_-]{8,}`)

// shown returns a text of another program as a message may have it: without the token, other secrets and what moves
// the cursor of a terminal, and not too long.
func shown(text, token string) string {
	if token != "" {
		text = strings.ReplaceAll(text, token, "(secret)")
	}
	text = secret.ReplaceAllString(text, "(secret)")
	text = strings.Map(func(one rune) rune {
		if unicode.IsPrint(one) || one == '\n' {
			return one
		}
		return ' '
	}, text)
	if len(text) > maxTextBytes {
		text = strings.ToValidUTF8(text[:maxTextBytes], "") + " ..."
	}
	return text
}

// FieldError is one wrong field of a request.
type FieldError struct {
	Field  string `json:"field"`
	Detail string `json:"detail"`
}

// Problem is an answer of the API that says no (RFC 9457).
type Problem struct {
	Status    int          `json:"status"`
	Title     string       `json:"title"`
	Detail    string       `json:"detail"`
	Code      string       `json:"code"`
	Errors    []FieldError `json:"errors"`
	RequestID string       `json:"request_id"`
	// Method and Path are those of the request, Location is the header of the answer.
	Method, Path, Location string `json:"-"`
	// API is the address that was asked.
	API string `json:"-"`
	// Versions names control and provider with their versions.
	Versions string `json:"-"`
	// Repeated says whether an earlier try may have reached the server.
	Repeated bool `json:"-"`
}

func (c *Client) readProblem(method, path string, response *http.Response, text []byte) *Problem {
	problem := &Problem{}
	show := func(text string) string { return shown(text, c.config.Token) }
	if err := json.Unmarshal(text, problem); err != nil || problem.Status == 0 {
		// Secrets are hidden in all of it, since one may be where the text is cut.
		found := strings.TrimSpace(show(string(text[:min(len(text), maxSearchedBytes)])))
		found = strings.ToValidUTF8(found[:min(len(found), maxShownBytes)], "")
		problem = &Problem{Detail: fmt.Sprintf("the server answered %s, and not as the API does: %q; does `api` name a Sallyport?", show(response.Status), found)}
	}
	problem.Detail, problem.Title, problem.RequestID = show(problem.Detail), show(problem.Title), show(problem.RequestID)
	problem.Errors = problem.Errors[:min(len(problem.Errors), maxErrors)]
	for index, one := range problem.Errors {
		problem.Errors[index] = FieldError{one.Field, show(one.Detail)}
	}
	problem.Status = response.StatusCode
	problem.Method, problem.Path, problem.API = method, path, c.config.API
	problem.Versions = fmt.Sprintf("control %s is older than this provider (%s)", cmp.Or(c.control, "at "+c.config.API), c.config.Version)
	problem.Location = response.Header.Get("Location")
	return problem
}

// isTransient says whether the same request may do better soon.
func (p *Problem) isTransient() bool {
	return !p.isOfEdge() && (p.Status == http.StatusTooManyRequests || p.Status == http.StatusServiceUnavailable ||
		p.Status == http.StatusBadGateway || p.Status == http.StatusGatewayTimeout ||
		(p.Status == http.StatusConflict && p.Code == "request-pending"))
}

// IsOlder says whether control does not know the path or the method: it is older than the provider.
func (p *Problem) IsOlder() bool {
	return p.Code == "no-such-path" || p.Code == "method-not-allowed"
}

// isOfEdge says whether an edge answered, and not the API: the host is that of services.
func (p *Problem) isOfEdge() bool {
	return p.Code == "unknown-name" || p.Code == "no-tunnel"
}

// Error says in one sentence what is wrong and what to do.
func (p *Problem) Error() string {
	switch {
	case p.isOfEdge():
		return fmt.Sprintf("services are at %s, and not the API: check `api` (or SALLYPORT_API), such as https://api.example.com", p.API)
	case p.IsOlder():
		return fmt.Sprintf("control does not know %s %s: %s; upgrade control, or use the provider of its release", p.Method, p.Path, p.Versions)
	case p.Status == http.StatusUnauthorized:
		return p.Detail + "; make a token with `sallyport token create`, and put it into SALLYPORT_TOKEN, or into `token` or `token_file` of the provider"
	case p.Code == "missing-scope":
		return p.Detail + "; make a token with the scope by `sallyport token create`"
	case p.Code == "name-taken" || p.Code == "policy-name-taken":
		return p.Detail + "; if it is this one, `terraform import` takes it over"
	case p.Status == http.StatusPreconditionFailed:
		return "it was changed elsewhere meanwhile, and nothing was done: plan again"
	}
	if strings.Contains(p.Detail, "there is no such field") {
		return p.Detail + "; " + p.Versions + ", or it would know the field"
	}
	text := p.Detail
	if len(p.Errors) > 1 {
		parts := make([]string, 0, len(p.Errors))
		for _, field := range p.Errors {
			parts = append(parts, field.Field+": "+field.Detail)
		}
		text = strings.Join(parts, "; ")
	}
	if text == "" {
		text = fmt.Sprintf("the server answered %d %s", p.Status, p.Title)
	}
	if p.Status >= 500 && p.RequestID != "" {
		text += fmt.Sprintf(" (request %s in the log of control)", p.RequestID)
	}
	return text
}

// AsProblem returns the problem in an error, or nil.
func AsProblem(err error) *Problem {
	var problem *Problem
	if errors.As(err, &problem) {
		return problem
	}
	return nil
}

// IsGone says whether the error is that the object is not there.
func IsGone(err error) bool {
	problem := AsProblem(err)
	return problem != nil && problem.Status == http.StatusNotFound && problem.Code == "not-found"
}

// HasCode says whether the error is a problem with this code.
func HasCode(err error, code string) bool {
	problem := AsProblem(err)
	return problem != nil && problem.Code == code
}

// explain says in one sentence why there is no answer.
func (c *Client) explain(err error) error {
	var unknown x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	var name x509.HostnameError
	var lookup *net.DNSError
	var record tls.RecordHeaderError
	switch {
	case errors.As(err, &unknown):
		return fmt.Errorf("the certificate of %s is of an authority that this machine does not trust: name its root in `ca` (or SALLYPORT_CA); `sallyport up` writes it to ca.pem in its data directory", c.config.API)
	case errors.As(err, &name), errors.As(err, &invalid):
		return fmt.Errorf("the certificate of %s is not good: %w", c.config.API, err)
	case errors.As(err, &record):
		return fmt.Errorf("%s does not speak TLS: is the port right?", c.config.API)
	case errors.As(err, &lookup):
		return fmt.Errorf("the name of %s is not known: check `api` (or SALLYPORT_API)", c.config.API)
	case isRefused(err):
		return fmt.Errorf("control cannot be reached at %s: nothing accepts connections there; check `api` (or SALLYPORT_API), and that control runs", c.config.API)
	case errors.Is(err, context.Canceled):
		return errors.New("the request was cancelled")
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("control did not answer in time at %s: check that control runs, and the way there", c.config.API)
	}
	return fmt.Errorf("control did not answer at %s: %w", c.config.API, err)
}

// isRefused says whether the request cannot have reached the server.
func isRefused(err error) bool {
	var operation *net.OpError
	return errors.Is(err, syscall.ECONNREFUSED) || (errors.As(err, &operation) && operation.Op == "dial")
}

// isForGood says whether a repetition would fail in the same way.
func isForGood(err error) bool {
	var verification *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	var lookup *net.DNSError
	return errors.As(err, &verification) || errors.As(err, &record) || errors.Is(err, context.Canceled) ||
		(errors.As(err, &lookup) && lookup.IsNotFound)
}
