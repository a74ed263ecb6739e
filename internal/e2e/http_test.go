//go:build e2e

package e2e_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"testing"
	"time"
)

// httpClient keeps no connections, and so no goroutines.
var httpClient = http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}

// call sends a request and gives the body of the answer; any status but 200 is an error.
func call(t *testing.T, req *http.Request) ([]byte, error) {
	t.Helper()
	resp, err := httpClient.Do(req.WithContext(t.Context()))
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s: %s: %.500s", req.Method, req.URL, resp.Status, body)
	}
	return body, err
}

func get(t *testing.T, url string) ([]byte, error) {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	return call(t, req)
}

// getJSON gets an object with a field data, as both Jaeger and Prometheus answer.
func getJSON[T any](t *testing.T, base string, query url.Values) (data T, err error) {
	t.Helper()
	body, err := get(t, base+"?"+query.Encode())
	if err != nil {
		return data, err
	}
	answer := struct{ Data *T }{&data}
	if err := json.Unmarshal(body, &answer); err != nil {
		return data, fmt.Errorf("%s: %w: %.500s", base, err, body)
	}
	return data, nil
}
