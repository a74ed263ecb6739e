package lockdebug_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/lock/lockdebug"
	"github.com/lockdog/lockdog/lock/locktest"
)

// The page beside pprof's, and what a script may want of it.
func ExampleHandler() {
	srv := locktest.New(nil) // in memory; a program has lock.New(rdb)
	defer srv.Close()
	http.Handle("/debug/locks", lockdebug.Handler(lockdebug.Options{Clients: []*lock.Client{srv.Client()}}))

	err := srv.Client().Mutex("order:42").Do(context.Background(), func(context.Context, *lock.Lease) error {
		rec := httptest.NewRecorder()
		http.DefaultServeMux.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/debug/locks?format=json&per=1", nil))
		var page struct {
			Held struct {
				Items []struct{ Name, State string }
			}
		}
		if err := json.Unmarshal(rec.Body.Bytes(), &page); err != nil {
			return err
		}
		fmt.Println(page.Held.Items)
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}

	// Output:
	// [{order:42 held}]
}

// Names end in the id of a customer, and owners begin with that of a tenant. The page shows neither, and still tells them apart.
func ExampleOptions_redact() {
	srv := locktest.New(nil, lock.WithClientID("tenant-7"))
	defer srv.Close()
	key := []byte("made anew by each process") // or whoever knows an id can look for its hash
	digest := func(s string) string {
		sum := hmac.New(sha256.New, key)
		sum.Write([]byte(s))
		return hex.EncodeToString(sum.Sum(nil)[:6])
	}
	page := lockdebug.Handler(lockdebug.Options{
		Clients: []*lock.Client{srv.Client()},
		RedactName: func(name string) string {
			kind, customer, _ := strings.Cut(name, ":")
			return kind + ":" + digest(customer)
		},
		RedactOwner: digest,
	})
	err := srv.Client().Mutex("cart:jane@example.com").Do(context.Background(), func(context.Context, *lock.Lease) error {
		rec := httptest.NewRecorder()
		page.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/?format=json", nil))
		fmt.Println(strings.Contains(rec.Body.String(), `"name": "cart:`), strings.Contains(rec.Body.String(), "jane"), strings.Contains(rec.Body.String(), "tenant"))
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}

	// Output:
	// true false false
}
